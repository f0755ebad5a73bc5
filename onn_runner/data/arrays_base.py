"""What a file with arrays is to its reader: names, shapes and types, and one sentence on what is damaged."""

from __future__ import annotations

import math
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onn_runner.data.arrays_stored import Array, Stored
from onn_runner.data.memory import free_bytes, megabytes
from onn_runner.errors import ConfigError, unknown

DAMAGE = (OSError, EOFError, ValueError, TypeError, KeyError, IndexError, zlib.error, zipfile.BadZipFile)
"""What the readers raise for files that are cut short or overwritten; NotImplementedError is a RuntimeError."""
SHOWN = 20
"""At most so many names in a message."""
ADVICE = {
    "struct": "save the array as a variable of its own",
    "cell": "save the array as a numeric variable",
    "sparse": "save full(...) of it",
    "object": "object arrays hold Python's pickles, which can run code: save numbers of one shape",
    "complex": "save real and imaginary parts as channels",
    "empty": "save it with values",
    "kept elsewhere": "its values are read from another file than this and those beside it: copy them into it",
}


@dataclass(frozen=True)
class Entry:
    """What a file holds under a name; `kind`: a dtype's name, or one of ADVICE or string."""

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

    @property
    def held(self) -> str:
        """What it holds, for messages."""
        texts = [str(entry) for entry in self.entries.values()]
        more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
        return ", ".join(texts[:SHOWN]) + more or "nothing"

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
        if min(entry.shape, default=0) < 1:
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

    def refuse_larger_than_memory(self, entry: Entry) -> None:
        """What is read as a whole: raises ConfigError before anything is unpacked that the memory does not hold."""
        size = math.prod(entry.shape) * np.dtype(entry.kind).itemsize
        if size > free_bytes():
            raise ConfigError(
                f"{entry} in {self.path} takes {megabytes(size)}, which is more than the memory that is free: save it "
                "as .npy or .h5, which are read in parts"
            )

    def _entry(self, name: object, key: str) -> Entry:
        usable = [entry for entry in self.entries.values() if entry.usable]
        if name is None:
            if len(usable) == 1:
                return usable[0]
            raise ConfigError(f"{key} must name an array of {self.path}, which holds {self.held}")
        if not isinstance(name, str):
            raise ConfigError(f"{key} (={name!r}) must be the name of an array of {self.path}, which holds {self.held}")
        found = self.entries.get(name.strip("/"))
        if found is None:
            raise unknown(f"array in {key}", name, (), remedy=f"{self.path} holds {self.held}.")
        return found


@contextmanager
def damage(path: Path, key: str) -> Iterator[None]:
    """Turns what readers say about a damaged file into one sentence."""
    from scipy.io.matlab import MatReadError

    try:
        yield
    except ConfigError:
        raise
    except MemoryError as error:
        raise ConfigError(f"{key} (={path}) holds more than the memory here: {' '.join(str(error).split())}") from error
    except (*DAMAGE, MatReadError, RuntimeError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{key} (={path}) cannot be read, it is cut short or no such file: {text}") from error


def by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "no axes"
