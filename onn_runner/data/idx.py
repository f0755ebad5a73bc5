"""Arrays of bytes in MNIST's format: a header with the number of axes and their lengths, then the values."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onn_runner.data.held import Held
from onn_runner.data.labelled import Labelled, Labels
from onn_runner.errors import ConfigError

BYTES = 8
"""The code of unsigned bytes in a header."""
PARTS = {"train": "train", "test": "t10k"}
"""Part -> how its files begin."""


def read_idx(path: Path) -> Tensor:
    """Uint8, of the shape that the header says; `path` may be gzipped. Raises: ConfigError."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zeros, kind, axes = struct.unpack(">HBB", data[:4])
        shape = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
    except (OSError, EOFError, struct.error, zlib.error) as error:
        raise ConfigError(f"cannot read {path}: {error}; get the file again") from error
    if zeros != 0 or kind != BYTES or len(data) - 4 - 4 * axes != math.prod(shape):
        raise ConfigError(f"cannot read {path}: it is cut off, or not an array of bytes in MNIST's format")
    values = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)
    return torch.from_numpy(values.copy())


def file_in(folder: Path, name: str) -> Path:
    """With or without .gz. Raises: ConfigError where there is neither."""
    found = next((folder / file for file in (name, f"{name}.gz") if (folder / file).is_file()), None)
    if found is None:
        raise ConfigError(f"{folder} holds no {name} or {name}.gz: put all four files of the data set there")
    return found


class MnistFiles(Labelled):
    """The four files of MNIST's layout: pictures and classes of the training and of the test part."""

    def __init__(
        self,
        folder: Path,
        classes: Sequence[str],
        origin: str,
        *,
        part: object,
        items: object,
        colour: object,
        standardise: object,
        transforms: object,
        seed: object,
    ) -> None:
        pictures, labels, names = [], [], []
        for name, prefix in PARTS.items():
            values = read_idx(file_in(folder, f"{prefix}-images-idx3-ubyte"))
            numbers = read_idx(file_in(folder, f"{prefix}-labels-idx1-ubyte"))
            _refuse_unlike(folder, prefix, values, numbers, len(classes))
            pictures.append(values)
            labels += numbers.tolist()
            names += [f"{name}[{index}]" for index in range(len(numbers))]
        if pictures[0].shape[1:] != pictures[1].shape[1:]:
            raise ConfigError(f"{folder}: the pictures of the training and the test part have different sizes")
        about = Labels(labels, classes, names, origin, test=range(len(pictures[0]), len(labels)))
        super().__init__(
            Held(torch.cat(pictures)[:, None]),
            about,
            part=part,
            items=items,
            colour=colour,
            standardise=standardise,
            transforms=transforms,
            seed=seed,
        )


def _refuse_unlike(folder: Path, prefix: str, pictures: Tensor, labels: Tensor, classes: int) -> None:
    if pictures.ndim != 3 or labels.ndim != 1 or len(pictures) != len(labels) or not len(labels):
        raise ConfigError(
            f"{folder}: the files {prefix}-* hold pictures of shape {list(pictures.shape)} and classes of shape "
            f"{list(labels.shape)}, not N pictures and N classes; get them again"
        )
    if int(labels.max()) >= classes:
        raise ConfigError(f"{folder}: the files {prefix}-* hold class {int(labels.max())}, and there are {classes}")
