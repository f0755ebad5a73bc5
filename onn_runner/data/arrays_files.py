"""Arrays by name in .h5, .npz, .npy and .mat files, with the axes that the program which wrote them shows."""

from __future__ import annotations

import struct
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onn_runner.checks import path_of
from onn_runner.data.arrays_base import ADVICE, ArrayFile, Entry
from onn_runner.data.arrays_stored import Array, Hdf5Array, InMemory, NpyArray, Stored, opened
from onn_runner.errors import ConfigError

SUFFIXES = (".h5", ".hdf5", ".npz", ".npy", ".mat")
INTERNAL = ("#refs#", "#subsystem#")
"""Where MATLAB 7.3 keeps what cells and objects hold."""


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

        if _is_elsewhere(node):
            return "kept elsewhere"
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


def _is_elsewhere(node: Any) -> bool:
    """Whether the values of a dataset come out of files that lie neither beside its own nor below: any on the disk."""
    if node.external:
        return True
    folder = Path(node.file.filename).resolve().parent
    sources = [source.file_name for source in node.virtual_sources()] if node.is_virtual else []
    return not all((folder / source).resolve().is_relative_to(folder) for source in sources)


class NumpyFile(ArrayFile):
    """.npz, or .npy, whose one array is named after the file; which of them it is, the file says."""

    def _entries(self) -> Iterator[Entry]:
        with self.path.open("rb") as file:
            start = file.read(len(np.lib.format.MAGIC_PREFIX))
            file.seek(0)
            if start == np.lib.format.MAGIC_PREFIX:
                yield Entry(self.path.stem, *_header(file))
            elif start[:2] != b"PK":
                raise ValueError("it begins as neither .npz nor .npy does")
            else:
                with zipfile.ZipFile(file) as members:
                    for name in members.namelist():
                        with members.open(name) as member:
                            yield Entry(name.removesuffix(".npy"), *_header(member))

    def _read(self, entry: Entry) -> Stored:
        if zipfile.is_zipfile(self.path):
            self.refuse_larger_than_memory(entry)
            return InMemory(self._strings(entry))
        stored = NpyArray(self.path, entry.shape, np.dtype(entry.kind))
        stored.handle()
        return stored

    def _strings(self, entry: Entry) -> Array:
        with self.path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return np.asarray(loaded if isinstance(loaded, np.ndarray) else loaded[entry.name])


class MatlabFile(ArrayFile):
    """MATLAB before 7.3; numbers have the class that MATLAB shows, however few bytes the file spends on them."""

    from_matlab = True
    CLASSES: Mapping[str, str] = {"double": "float64", "single": "float32", "logical": "bool"}

    def _entries(self) -> Iterator[Entry]:
        from scipy.io import whosmat

        self._check_length()
        for name, shape, kind in whosmat(self.path):
            yield Entry(name, shape, self.CLASSES.get(kind, kind))

    def _check_length(self) -> None:
        """What is cut short can read as a file with fewer variables, or with other ones where bytes are missing."""
        size, place = self.path.stat().st_size, 128
        with self.path.open("rb") as file:
            header = file.read(place)
            if len(header) < place or 0 in header[:4]:
                # Version 4 has no header, and scipy knows its lengths.
                return
            order = "<I" if header[126:128] == b"IM" else ">I"
            while place < size:
                file.seek(place + 4)
                count = file.read(4)
                place += 8 + (struct.unpack(order, count)[0] if len(count) == 4 else 0)
        if place > size:
            raise EOFError(f"{size} bytes of at least {place}")

    def _read(self, entry: Entry) -> Stored:
        self.refuse_larger_than_memory(entry)
        return InMemory(self._strings(entry))

    def _strings(self, entry: Entry) -> Array:
        from scipy.io import loadmat

        with warnings.catch_warnings():
            # The file's table of contents does not tell complex numbers from others.
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            try:
                return np.asarray(loadmat(self.path, variable_names=[entry.name], mat_dtype=True)[entry.name])
            except np.exceptions.ComplexWarning as error:
                raise ConfigError(
                    f"{entry.name} in {self.path} is no array of numbers but complex: {ADVICE['complex']}"
                ) from error


def open_file(path: object, key: str) -> ArrayFile:
    """Raises ConfigError for what is no such file, with what is wrong with it."""
    suffixes = ", ".join(SUFFIXES)
    if not isinstance(path, str) or not path:
        raise ConfigError(f"{key} (={path}) must be a file with arrays: {suffixes}")
    file = path_of(path)
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


def _is_hdf5(path: Path) -> bool:
    """Whether HDF5's signature is there, at the start or behind MATLAB's header; the file may be cut short after it."""
    with path.open("rb") as file:
        start = file.read(520)
    return any(start[place : place + 8] == b"\x89HDF\r\n\x1a\n" for place in (0, 512))


def _header(file: Any) -> tuple[tuple[int, ...], str]:
    """Shape and kind of what is in an .npy file, nothing of its values."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, {"O": "object", "U": "string", "S": "string", "V": "struct"}.get(dtype.kind, dtype.name)
