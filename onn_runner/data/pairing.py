"""Which input belongs to which target: by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onn_runner.checks import path_of, refuse
from onn_runner.data.files import File, Found, find
from onn_runner.data.groups import listing
from onn_runner.errors import ConfigError

KEYS = ("data.inputs", "data.targets")
MARKS = ("data.input_mark", "data.target_mark")


@dataclass(frozen=True)
class Paired:
    inputs: list[File]
    targets: list[File]
    bad: list[tuple[str, str]]
    """Files without a partner, or with several, and why."""
    others: int
    """Files that are no images, or carry neither mark."""


def paired(inputs: object, targets: object, input_mark: object, target_mark: object) -> Paired:
    """Inputs and targets of the same path below their folders, up to the suffix and the marks.

    A mark is the part of the path that says what a file is (NOISY, GT), at its last occurrence; files without it are
    passed over. Where only one mark is given and both folders are the same, files without it are of the other kind.

    Raises: ConfigError for folders that hold no images or no pair, and for marks that tell nothing apart.
    """
    marks = (_mark(MARKS[0], input_mark), _mark(MARKS[1], target_mark))
    found = (find(inputs, KEYS[0]), find(targets, KEYS[1]))
    together = path_of(str(inputs)).resolve() == path_of(str(targets)).resolve()
    if together and marks[0] == marks[1]:
        raise ConfigError(
            "data.inputs and data.targets are the same folder: say by data.input_mark and data.target_mark which part "
            "of a name makes it an input or a target, such as NOISY and GT"
        )
    sides = [_marked(found[side].files, marks[side], marks[1 - side], together) for side in (0, 1)]
    for side, kind in enumerate(("input", "target")):
        if not sides[side]:
            raise ConfigError(
                f"{KEYS[side]} (={(inputs, targets)[side]}) holds no {kind}: no path has data.{kind}_mark "
                f"(={marks[side]}) in it; there are {listing([file.name for file in found[side].files])}"
            )
    pairs, bad = _matched(*sides)
    if not pairs:
        raise ConfigError(
            "no file in data.inputs has a partner in data.targets: paths below the two folders must agree up to their "
            f"suffix (data.input_mark and data.target_mark name a part that differs); inputs are "
            f"{_some(sides[0])}, targets {_some(sides[1])}"
        )
    return Paired([pair[0] for pair in pairs], [pair[1] for pair in pairs], bad, _others(found, sides, together))


def _mark(key: str, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise refuse(key, value, "the part of the file names that differs, such as NOISY, or null")
    return value


Side = dict[str, list[File]]
"""What inputs and targets have in common -> the files."""


def _marked(files: Sequence[File], mark: str | None, other: str | None, together: bool) -> Side:
    side: Side = {}
    for file in files:
        if together and other is not None and other in file.stem and not _says_more(mark, other, file.stem):
            continue
        if mark is None:
            common = file.stem
        elif mark in file.stem:
            before, _, after = file.stem.rpartition(mark)
            common = before + after
        else:
            continue
        side.setdefault(common, []).append(file)
    return side


def _says_more(mark: str | None, other: str, stem: str) -> bool:
    """Whether a name that has both marks is of the first kind: the longer mark counts (noisy in noisy_gt)."""
    return mark is not None and mark in stem and len(mark) > len(other)


def _matched(inputs: Side, targets: Side) -> tuple[list[tuple[File, File]], list[tuple[str, str]]]:
    pairs, bad = [], []
    for common in sorted(inputs.keys() | targets.keys()):
        given, wanted = inputs.get(common, []), targets.get(common, [])
        if len(given) == len(wanted) == 1:
            pairs.append((given[0], wanted[0]))
            continue
        names = [file.name for file in (*given, *wanted)]
        if not given or not wanted:
            bad.append((listing(names), "has no input" if not given else "has no target"))
        else:
            bad.append((listing(names), "have one name for several inputs or targets"))
    return pairs, bad


def _some(side: Side) -> str:
    return listing([file.name for files in side.values() for file in files])


def _others(found: tuple[Found, Found], sides: Sequence[Side], together: bool) -> int:
    """A folder that holds both is counted once."""
    taken = sum(len(files) for side in sides for files in side.values())
    looked_at = found[:1] if together else found
    return sum(len(one.files) + one.others for one in looked_at) - taken
