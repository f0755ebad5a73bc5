"""CIFAR-10 and CIFAR-100, 60,000 colour pictures of 32 x 32: from the folders that their authors publish."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from onn_runner.checks import choice
from onn_runner.data.held import Held
from onn_runner.data.labelled import Labelled, Labels
from onn_runner.data.published import Published
from onn_runner.errors import ConfigError

SHAPE = (3, 32, 32)
STANDARDISE_10 = ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
STANDARDISE_100 = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
"""Means and deviations of red, green and blue over the 50,000 training pictures."""
FILES_10 = Published("cifar10", "CIFAR10", ("cifar-10-batches-py", ""), ("data_batch_1",), "170 MB")
FILES_100 = Published("cifar100", "CIFAR100", ("cifar-100-python", ""), ("train",), "170 MB")


class Cifar10(Labelled):
    """Raises: ConfigError for each value that cannot be carried out, and for files that are missing or damaged."""

    def __init__(
        self,
        *,
        path: str | None = None,
        download: bool = False,
        part: str = "all",
        items: int | None = None,
        colour: bool | None = None,
        standardise: object = STANDARDISE_10,
        transforms: object = (),
        seed: int = 0,
    ) -> None:
        folder = FILES_10.folder(path, download)
        batches = [folder / f"data_batch_{number}" for number in range(1, 6)]
        names = _names(folder / "batches.meta", "label_names")
        pictures, about = _loaded(batches, folder / "test_batch", names, "labels", "CIFAR-10")
        super().__init__(
            pictures,
            about,
            part=part,
            items=items,
            colour=colour,
            standardise=standardise,
            transforms=transforms,
            seed=seed,
        )


class Cifar100(Labelled):
    """`labels`: `fine` for the 100 classes, `coarse` for the 20 kinds of them.

    Raises: ConfigError for each value that cannot be carried out, and for files that are missing or damaged.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        download: bool = False,
        labels: str = "fine",
        part: str = "all",
        items: int | None = None,
        colour: bool | None = None,
        standardise: object = STANDARDISE_100,
        transforms: object = (),
        seed: int = 0,
    ) -> None:
        how = choice("data.labels", labels, ("fine", "coarse"))
        folder = FILES_100.folder(path, download)
        names = _names(folder / "meta", f"{how}_label_names")
        pictures, about = _loaded([folder / "train"], folder / "test", names, f"{how}_labels", "CIFAR-100")
        super().__init__(
            pictures,
            about,
            part=part,
            items=items,
            colour=colour,
            standardise=standardise,
            transforms=transforms,
            seed=seed,
        )


def read_pickle(path: Path) -> dict[str, Any]:
    """A dictionary of arrays, lists, texts and numbers. Raises: ConfigError for a file that holds anything else."""
    try:
        with path.open("rb") as file:
            loaded = _Reader(file, encoding="latin1").load()
    except FileNotFoundError as error:
        raise ConfigError(f"{path} is missing: unpack the archive again") from error
    except (OSError, pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"cannot read {path}: {text}; unpack the archive again") from error
    if not isinstance(loaded, Mapping):
        raise ConfigError(f"cannot read {path}: it holds {type(loaded).__name__}, not a dictionary of arrays")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in loaded.items()}


class _Reader(pickle.Unpickler):
    """A pickle can call any function when it is read; this one knows what numpy arrays are made with, and no more."""

    def __init__(self, file: BinaryIO, *, encoding: str) -> None:
        super().__init__(file, encoding=encoding)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a file of pictures has no need of")


def _empty_array(kind: object, shape: object, code: object) -> Any:
    """What numpy fills afterwards."""
    return np.ndarray.__new__(np.ndarray, (0,), np.int8)


def _full_array(buffer: bytes, kind: Any, shape: tuple[int, ...], order: Any, axes: object = None) -> Any:
    """How newer files hold arrays; `axes` of those that are neither in C's nor in Fortran's order."""
    if axes is not None:
        raise pickle.UnpicklingError("its arrays are neither in C's nor in Fortran's order")
    return np.frombuffer(buffer, kind).reshape(shape, order=order)


def _type(name: str, align: object, copy: object) -> Any:
    """The authors' files say 0 and 1, which numpy takes no longer."""
    return np.dtype(name, align=bool(align), copy=bool(copy))


def _bytes(text: str, encoding: object) -> bytes:
    """How Python 3 writes bytes for Python 2."""
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.numeric", "_frombuffer"): _full_array,
    # Named in files as what _reconstruct makes; as a function it could be asked for an array of any size.
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): _type,
    ("_codecs", "encode"): _bytes,
}


def _names(path: Path, key: str) -> list[str]:
    found = read_pickle(path).get(key)
    if not isinstance(found, list) or not found:
        raise ConfigError(f"{path} holds no {key}: unpack the archive again")
    return [name.decode() if isinstance(name, bytes) else str(name) for name in found]


def _loaded(training: Sequence[Path], test: Path, classes: Sequence[str], key: str, origin: str) -> tuple[Held, Labels]:
    parts = [_part(path, key, len(classes)) for path in (*training, test)]
    tested = len(parts[-1][1])
    trained = sum(len(labels) for _, labels in parts[:-1])
    names = [f"{part}[{index}]" for part, count in (("train", trained), ("test", tested)) for index in range(count)]
    labels = [label for _, found in parts for label in found]
    about = Labels(labels, classes, names, origin, test=range(trained, trained + tested))
    return Held(torch.cat([pictures for pictures, _ in parts])), about


def _part(path: Path, key: str, classes: int) -> tuple[Tensor, list[int]]:
    """[N, 3, 32, 32] uint8 and the classes. Raises: ConfigError."""
    content = read_pickle(path)
    values, labels = content.get("data"), content.get(key)
    if not isinstance(values, np.ndarray) or values.dtype != np.uint8 or values.shape[1:] != (math.prod(SHAPE),):
        raise ConfigError(f"{path} holds no pictures of 3 x 32 x 32 bytes under 'data': unpack the archive again")
    if not isinstance(labels, list) or len(labels) != len(values) or not all(_is_class(n, classes) for n in labels):
        raise ConfigError(f"{path} holds no {key} from 0 to {classes - 1} for its {len(values)} pictures")
    return torch.from_numpy(values.reshape(-1, *SHAPE).copy()), [int(label) for label in labels]


def _is_class(label: object, classes: int) -> bool:
    return isinstance(label, int) and 0 <= label < classes
