"""The user's own pictures in class folders: cats/1.png, cats/indoors/2.jpg, dogs/1.png."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onn_runner.checks import amount, flag, path_of
from onn_runner.data.collection import reasons
from onn_runner.data.decoded import Decoded, Form, Found, Reading, form, read_all
from onn_runner.data.files import File, find
from onn_runner.data.groups import group_names, listing
from onn_runner.data.labelled import Labelled, Labels
from onn_runner.data.memory import budget
from onn_runner.errors import ConfigError


@dataclass(frozen=True)
class Folder:
    """The files of class folders; `bad`: what lies in none, and class folders without images."""

    files: list[File]
    others: int
    bad: list[tuple[str, str]]


class ImageFolder(Labelled):
    """The folders right below `path` are the classes; what lies in folders below these is theirs too.

    `test_path`: class folders of the same names, the data's own test part.

    Raises: ConfigError for each value that cannot be carried out, and for files that cannot be used, all in one list.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        test_path: str | None = None,
        size: int | Sequence[int] | None = None,
        fit: str = "crop",
        colour: bool | None = None,
        groups: str = "file",
        part: str = "all",
        items: int | None = None,
        standardise: object = None,
        transforms: object = (),
        skip_bad: bool = False,
        in_memory: bool | None = None,
        seed: int = 0,
    ) -> None:
        if path is None:
            raise ConfigError("data=image_folder needs data.path: a folder that holds one folder of images a class")
        skipping = flag("data.skip_bad", skip_bad)
        manner = form(colour=None if colour is None else flag("data.colour", colour), size=size, fit=fit)
        trained = _class_folders(path, "data.path", "" if test_path is None else "train/")
        tested = None if test_path is None else _class_folders(test_path, "data.test_path", "test/")
        folders = [trained] if tested is None else [trained, tested]
        files = [file for folder in folders for file in folder.files]
        reading = read_all(files, manner, budget=budget(in_memory))
        self._bad = [bad for folder in folders for bad in folder.bad] + reading.bad
        self._others = sum(folder.others for folder in folders)
        _refuse_bad(path, self._bad, len(reading.found), skipping)
        self._found = reading.found
        super().__init__(
            _pictures(reading, manner, colour),
            _labels(reading.found, path, marked=tested is not None, groups=groups),
            part=part,
            items=items,
            standardise=standardise,
            transforms=transforms,
            seed=seed,
        )

    def describe(self) -> list[str]:
        lines = super().describe()
        if self._others:
            lines.append(f"{amount(self._others, 'other file')} passed over")
        if self._bad:
            lines.append(f"{len(self._bad)} left out (data.skip_bad=true): {reasons(self._bad)}")
        if alike := len(self._found) - len({found.digest for found in self._found}):
            lines.append(f"pictures that are the same as another one, which flatters on two sides of a fold: {alike}")
        noted: dict[str, list[str]] = {}
        for found in self._found:
            if found.note:
                noted.setdefault(found.note, []).append(found.file.name)
        return [*lines, *(f"{note}: {listing(names)}" for note, names in noted.items())]


def _class_folders(path: str, key: str, mark: str) -> Folder:
    """`mark`: before every name, so that two folders may hold files of the same name."""
    found = find(path, key)
    inside = [file for file in found.files if "/" in file.name]
    bad = [(mark + file.name, "lies in no class folder") for file in found.files if "/" not in file.name]
    held = {_class(file.name) for file in inside}
    empty = sorted({_composed(folder.name) for folder in path_of(path).iterdir() if _is_class(folder)} - held)
    bad += [(mark + name, "is a class folder without images") for name in empty]
    return Folder([File(mark + file.name, file.path) for file in inside], found.others, bad)


def _is_class(folder: Path) -> bool:
    return folder.is_dir() and not folder.name.startswith(".")


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _class(name: str) -> str:
    return name.partition("/")[0]


def _refuse_bad(path: str, bad: Sequence[tuple[str, str]], good: int, skipping: bool) -> None:
    if not good:
        raise ConfigError(f"data.path (={path}): none of its {len(bad)} entries can be used: {reasons(bad)}")
    if bad and not skipping:
        raise ConfigError(
            f"data.path (={path}): {len(bad)} of {good + len(bad)} entries cannot be used: {reasons(bad)}. Repair them "
            "or take them out, or leave them out with data.skip_bad=true"
        )


def _labels(found: Sequence[Found], path: str, *, marked: bool, groups: object) -> Labels:
    """`marked`: names begin with train/ or test/.

    Raises: ConfigError for classes that are tested and never trained on.
    """
    names = [one.file.name for one in found]
    belows = [name.partition("/")[2] for name in names] if marked else names
    folders = [_class(below) for below in belows]
    test = [number for number, name in enumerate(names) if marked and name.startswith("test/")]
    tested = {folders[number] for number in test}
    trained = set(folders) if not marked else {folders[n] for n, name in enumerate(names) if name.startswith("train/")}
    if unknown := sorted(tested - trained):
        raise ConfigError(f"data.test_path has class folders that data.path has not: {listing(unknown)}")
    classes = sorted(trained)
    number_of = {name: number for number, name in enumerate(classes)}
    return Labels(
        [number_of[folder] for folder in folders],
        classes,
        names,
        str(path),
        groups=group_names(names, groups),
        test=test if marked else None,
    )


def _pictures(reading: Reading, manner: Form, colour: bool | None) -> Decoded:
    """Raises: ConfigError where pictures differ in size and none was asked for."""
    sizes = sorted({found.shape[1:] for found in reading.found})
    if len(sizes) > 1:
        low, high = (" x ".join(map(str, size)) for size in (sizes[0], sizes[-1]))
        raise ConfigError(
            f"the pictures have {len(sizes)} sizes, from {low} to {high}, and a network needs one: set data.size, such "
            "as data.size=64"
        )
    channels = 3 if colour else max(found.shape[0] for found in reading.found)
    return Decoded(reading.found, reading.held, manner, channels, reading.size)
