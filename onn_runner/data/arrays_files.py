"""Arrays by name in .h5, .npz, .npy and .mat files, with the axes that the program which wrote them shows."""

from __future__ import annotations

import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onn_runner.data.arrays_stored import Array, Hdf5Array, InMemory, NpyArray, Stored, opened
from onn_runner.errors import ConfigError, unknown

SUFFIXES = (".h5", ".hdf5", ".npz", ".npy", ".mat")
DAMAGE = (OSError, EOFError, ValueError, TypeError, KeyError, IndexError, zlib.error, zipfile.BadZipFile)
"""What the readers raise for files that are cut short or overwritten; NotImplementedError is a RuntimeError."""
INTERNAL = ("#refs#", "#subsystem#")
"""Where MATLAB 7.3 keeps what cells and objects hold."""
ADVICE = {
    "struct": "save the array as a variable of its own",
    "cell": "save the array as a numeric variable",
    "sparse": "save full(...) of it",
    "object": "object arrays hold Python's pickles, which can run code: save numbers of one shape",
    "complex": "save real and imaginary parts as channels",
    "empty": "save it with values",
}


@dataclass(frozen=True)
class Entry:
    """What a file holds under a name; `kind`: a dtype's name, or string, object, struct, cell, sparse, empty."""

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def usable(self) -> bool:
        return self.kind == "bool" or self.kind.startswith(("int", "uint", "float"))

    def __str__(self) -> str:
        return f"{self.name} ({by(self.shape)}, {self.kind})"


class ArrayFile(ABC):
    """One file. `key`: the config key that named it, for messages."""

    from_matlab = False

    def __init__(self, path: Path, key: str) -> None:
        self.path, self.key = path, key
        with damage(path, key):
            self.entries: Mapping[str, Entry] = {entry.name: entry for entry in self._entries()}

    @abstractmethod
    def _entries(self) -> Iterator[Entry]: ...

    @abstractmethod
    def _read(self, entry: Entry) -> Stored: ...

    @abstractmethod
    def _strings(self, entry: Entry) -> Array: ...

    def array(
        self,
        name: object,  # what `key` says; None where the file holds one array only
        key: str,
    ) -> Stored:
        """The numbers under a name. Raises ConfigError naming what the file holds instead."""
        entry = self._entry(name, key)
        if not entry.usable:
            kind = "complex" if entry.kind.startswith("complex") else entry.kind
            advice = ADVICE.get(kind, "choose an array of numbers")
            raise ConfigError(f"{key} (={entry.name}) in {self.path} is no array of numbers but {entry.kind}: {advice}")
        if 0 in entry.shape or not entry.shape:
            raise ConfigError(f"{key} (={entry.name}) in {self.path} is empty or a single number: {entry}")
        with damage(self.path, self.key):
            return self._read(entry)

    def labels(self, name: str, key: str) -> list[str]:
        """One word per entry of a vector of whole numbers or strings: 3, 3.0 and "3" are the same."""
        entry = self._entry(name, key)
        if entry.kind not in ("string", "char") and not entry.usable:
            raise ConfigError(
                f"{key} (={name}) in {self.path} is {entry.kind}: give whole numbers, words or a CSV file"
            )
        with damage(self.path, self.key):
            values = np.ravel(self._strings(entry) if not entry.usable else self._read(entry).load())
        if entry.kind != "char" and max(entry.shape, default=0) != len(values):
            raise ConfigError(f"{key} (={name}) in {self.path} has {by(entry.shape)} values: give one label per item")
        if entry.usable and not np.array_equal(values, np.round(values)):
            raise ConfigError(f"{key} (={name}) in {self.path} holds fractions: labels are whole numbers or words")
        return [str(int(value)) if entry.usable else str(value).strip() for value in values.tolist()]

    def _entry(self, name: object, key: str) -> Entry:
        usable = [entry for entry in self.entries.values() if entry.usable]
        held = ", ".join(str(entry) for entry in self.entries.values()) or "nothing"
        if name is None:
            if len(usable) == 1:
                return usable[0]
            raise ConfigError(f"{key} must name an array of {self.path}, which holds {held}")
        if not isinstance(name, str):
            raise ConfigError(f"{key} (={name!r}) must be the name of an array of {self.path}, which holds {held}")
        found = self.entries.get(name.strip("/"))
        if found is None:
            raise unknown(f"array in {key}", name, (), remedy=f"{self.path} holds {held}.")
        return found


class Hdf5File(ArrayFile):
    """MATLAB writes its arrays column by column, so that HDF5 shows their axes in reverse."""

    def __init__(self, path: Path, key: str) -> None:
        with path.open("rb") as file:
            self.from_matlab = path.suffix.lower() == ".mat" or file.read(10) == b"MATLAB 7.3"
        super().__init__(path, key)

    def _entries(self) -> Iterator[Entry]:
        import h5py

        found: list[Entry] = []

        def visit(name: str, node: Any) -> None:
            if name.split("/")[0] in INTERNAL:
                return
            if isinstance(node, h5py.Dataset):
                found.append(Entry(name, node.shape[::-1] if self.from_matlab else node.shape or (), self._kind(node)))
            elif "MATLAB_sparse" in node.attrs:
                found.append(Entry(name, (), "sparse"))

        with opened(self.path) as file:
            file.visititems(visit)
        sparse = tuple(f"{entry.name}/" for entry in found if entry.kind == "sparse")
        yield from (entry for entry in found if not entry.name.startswith(sparse or ("//",)))

    def _kind(self, node: Any) -> str:
        import h5py

        written = node.attrs.get("MATLAB_class", b"")
        written = written.decode() if isinstance(written, bytes) else str(written)
        if node.shape is None or "MATLAB_empty" in node.attrs:
            return "empty"
        if written == "logical":
            return "bool"
        if written in ("char", "cell", "struct"):
            return written
        if h5py.check_string_dtype(node.dtype) is not None:
            return "string"
        if node.dtype.names == ("real", "imag"):
            return "complex"
        return "object" if node.dtype.kind == "O" else "struct" if node.dtype.kind == "V" else node.dtype.name

    def _read(self, entry: Entry) -> Stored:
        return Hdf5Array(self.path, entry.name, entry.shape, np.dtype(entry.kind), reverse=self.from_matlab)

    def _strings(self, entry: Entry) -> Array:
        with opened(self.path) as file:
            if entry.kind == "string":
                return np.asarray(file[entry.name].asstr()[...], dtype=str)
            rows = np.atleast_2d(file[entry.name][...].T)
        return np.array(["".join(map(chr, row)) for row in rows.tolist()])


class NumpyFile(ArrayFile):
    """.npz, or .npy, whose one array is named after the file."""

    def _entries(self) -> Iterator[Entry]:
        if not zipfile.is_zipfile(self.path):
            array = np.load(self.path, allow_pickle=False, mmap_mode="r")
            yield Entry(self.path.stem, array.shape, _numpy_kind(array.dtype))
            return
        with np.load(self.path, allow_pickle=False) as file:
            for name in file.files:
                with file.zip.open(f"{name}.npy") as member:
                    shape, dtype = _header(member)
                yield Entry(name, shape, _numpy_kind(dtype))

    def _read(self, entry: Entry) -> Stored:
        if zipfile.is_zipfile(self.path):
            return InMemory(self._strings(entry))
        return NpyArray(self.path, entry.shape, np.dtype(entry.kind))

    def _strings(self, entry: Entry) -> Array:
        loaded = np.load(self.path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return np.asarray(loaded[entry.name])


class MatlabFile(ArrayFile):
    """MATLAB before 7.3; numbers have the class that MATLAB shows, however few bytes the file spends on them."""

    from_matlab = True
    CLASSES: Mapping[str, str] = {"double": "float64", "single": "float32", "logical": "bool"}

    def _entries(self) -> Iterator[Entry]:
        from scipy.io import whosmat

        for name, shape, kind in whosmat(self.path):
            yield Entry(name, shape, self.CLASSES.get(kind, kind))

    def _read(self, entry: Entry) -> Stored:
        array = self._strings(entry)
        if array.dtype.kind == "c":
            raise ConfigError(f"{entry.name} in {self.path} is no array of numbers but complex: {ADVICE['complex']}")
        return InMemory(array)

    def _strings(self, entry: Entry) -> Array:
        from scipy.io import loadmat

        return np.asarray(loadmat(self.path, variable_names=[entry.name], mat_dtype=True)[entry.name])


def open_file(path: object, key: str) -> ArrayFile:
    """Raises ConfigError for what is no such file, with what is wrong with it."""
    suffixes = ", ".join(SUFFIXES)
    if not isinstance(path, str) or not path:
        raise ConfigError(f"{key} (={path}) must be a file with arrays: {suffixes}")
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"{key} (={path}) is no file: give one with arrays ({suffixes})")
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(f"{key} (={path}) must end in one of {suffixes}")
    if file.stat().st_size == 0:
        raise ConfigError(f"{key} (={path}) is empty: write the file again")
    if suffix in (".h5", ".hdf5") or (suffix == ".mat" and _is_hdf5(file)):
        return Hdf5File(file, key)
    return MatlabFile(file, key) if suffix == ".mat" else NumpyFile(file, key)


@contextmanager
def damage(path: Path, key: str) -> Iterator[None]:
    """Turns what readers say about a damaged file into one sentence."""
    from scipy.io.matlab import MatReadError

    try:
        yield
    except ConfigError:
        raise
    except (*DAMAGE, MatReadError, RuntimeError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{key} (={path}) cannot be read, it is cut short or no such file: {text}") from error


def by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "no axes"


def _is_hdf5(path: Path) -> bool:
    """Whether HDF5's signature is there, at the start or behind MATLAB's header; the file may be cut short after it."""
    with path.open("rb") as file:
        start = file.read(520)
    return any(start[place : place + 8] == b"\x89HDF\r\n\x1a\n" for place in (0, 512))


def _header(member: Any) -> tuple[tuple[int, ...], npt.DTypeLike]:
    """Shape and dtype of an .npy file, nothing of its values."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)
    return shape, dtype


def _numpy_kind(dtype: Any) -> str:
    kind = np.dtype(dtype).kind
    return {"O": "object", "U": "string", "S": "string", "V": "struct"}.get(kind, np.dtype(dtype).name)
