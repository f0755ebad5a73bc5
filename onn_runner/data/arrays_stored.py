"""An array in memory or on disk, read in parts, from any process."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onn_runner.errors import ConfigError

Array = npt.NDArray[Any]


class Stored(ABC):
    """`shape` and `dtype` as the program that wrote the file shows them."""

    on_disk: bool
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @abstractmethod
    def read(self, index: tuple[slice, ...]) -> Array:
        """A part, one slice per axis."""

    def load(self) -> Array:
        return self.read((slice(None),) * len(self.shape))


class InMemory(Stored):
    on_disk = False

    def __init__(self, array: Array) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def read(self, index: tuple[slice, ...]) -> Array:
        return self.array[index]


class Lengthened(Stored):
    """`inner` with `more` last axes of length 1, which its file does not keep."""

    def __init__(self, inner: Stored, more: int) -> None:
        self.inner, self.more, self.on_disk = inner, more, inner.on_disk
        self.shape, self.dtype = inner.shape + (1,) * more, inner.dtype

    def read(self, index: tuple[slice, ...]) -> Array:
        found = self.inner.read(index[: -self.more])
        lengthened = found.reshape(found.shape + (1,) * self.more)
        last = (slice(None),) * found.ndim + index[-self.more :]
        return np.asarray(lengthened[last])


class OnDisk(Stored):
    """Opened when first read, in each process anew: what is pickled or forked holds no open file."""

    on_disk = True

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype
        self._handle: Any = None
        _OPEN.add(self)

    @abstractmethod
    def open(self) -> Any:
        """What can be sliced like the array."""

    def close(self) -> None:
        self._handle = None

    def damaged(self, error: Exception) -> ConfigError:
        return ConfigError(f"{self.path} cannot be read, it is damaged or has changed: {' '.join(str(error).split())}")

    def handle(self) -> Any:
        if self._handle is None:
            try:
                self._handle = self.open()
            except (OSError, ValueError, KeyError) as error:
                raise self.damaged(error) from error
        return self._handle

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _OPEN.add(self)


_OPEN: weakref.WeakSet[OnDisk] = weakref.WeakSet()


def _close_all() -> None:
    for stored in list(_OPEN):
        stored.close()


# HDF5's state of an open file does not survive a fork; where processes do not fork, there is nothing to close.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_close_all)


class NpyArray(OnDisk):
    def open(self) -> Any:
        return np.load(self.path, mmap_mode="r", allow_pickle=False)

    def read(self, index: tuple[slice, ...]) -> Array:
        return np.array(self.handle()[index])


class Hdf5Array(OnDisk):
    """`reverse`: the file holds the axes in reverse order, as MATLAB's do."""

    def __init__(
        self, path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, reverse: bool = False
    ) -> None:
        super().__init__(path, shape, dtype)
        self.name, self.reverse = name, reverse

    def open(self) -> Any:
        import h5py

        return h5py.File(self.path, "r", locking=False)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
        super().close()

    def read(self, index: tuple[slice, ...]) -> Array:
        dataset = self.handle()[self.name]
        try:
            found = dataset[index[::-1]].T if self.reverse else dataset[index]
        except (OSError, RuntimeError, ValueError) as error:
            raise self.damaged(error) from error
        except MemoryError as error:
            raise ConfigError(f"{self.name} in {self.path}: an item does not fit into the memory ({error})") from error
        # MATLAB's logical values are bytes in the file.
        return np.asarray(found, dtype=self.dtype)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An HDF5 file for reading; not locked, so that another program may hold it open."""
    import h5py

    with h5py.File(path, "r", locking=False) as file:
        yield file
