"""Runs of some folds each, as their folders tell, and why several of them are no whole run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onn_runner import plain
from onn_runner.errors import ConfigError

ONLY = "partition.only"
PASSED_OVER = ("joined", "earlier")
"""Folders of a sweep in which no parts are looked for."""
ENDED = ("done", "diverged")


@dataclass(frozen=True)
class Part:
    """A run of some folds of its partition, as its folder tells."""

    folder: Path
    config: Mapping[str, Any]
    split: Mapping[str, Any]
    record: Mapping[str, Any]
    results: Mapping[str, Any]

    @cached_property
    def folds(self) -> tuple[int, ...]:
        return tuple(int(fold["index"]) for fold in self.split["folds"])

    @cached_property
    def alike(self) -> str:
        """The same text for runs whose configs differ in nothing but `name` and which folds they train."""
        partition = {key: value for key, value in self.config["partition"].items() if key != "only"}
        config = {key: value for key, value in self.config.items() if key != "name"}
        return json.dumps([{**config, "partition": partition}, self.split["of"]], sort_keys=True)

    @property
    def overrides(self) -> list[str]:
        """Those that compose the whole run."""
        return [text for text in self.record["overrides"] if key_of(text) != ONLY]


def parts_in(folders: Iterable[Path]) -> Iterator[Part]:
    """Every part of a run in these folders, by path, once. Raises ConfigError for a folder that is not there."""
    seen = set()
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such folder; give runs', such as outputs/<name>/<time-stamp>")
        for run in _runs(folder):
            if run.resolve() not in seen:
                seen.add(run.resolve())
                part = _read(run)
                if part is not None:
                    yield part


def _runs(folder: Path) -> Iterator[Path]:
    if (folder / "run.json").is_file():
        yield folder
        return
    for below in sorted(folder.iterdir()):
        passed_over = below.name.startswith(".") or below.name in PASSED_OVER or below.is_symlink()
        if below.is_dir() and not passed_over:
            yield from _runs(below)


def _read(folder: Path) -> Part | None:
    """None for a run of all folds, and for one whose files cannot be read."""
    try:
        split, record = plain.read_json(folder / "split.json"), plain.read_json(folder / "run.json")
        results = plain.read_json(folder / "results.json") if (folder / "results.json").is_file() else {}
        part = Part(folder, plain.read_yaml(folder / "config.yaml"), split, record, results)
        if part.config["partition"].get("only") is None or len(part.folds) >= split["of"]:
            return None
    except (ConfigError, LookupError, TypeError, ValueError, AttributeError):
        return None
    return part


def trouble(group: Sequence[Part]) -> str:
    """Why these parts are no whole run; empty where they are one."""
    first, of = group[0], group[0].split["of"]
    owners: dict[int, Part] = {}
    for part in group:
        for number in part.folds:
            if number in owners:
                return f"fold {number} is in {owners[number].folder} and in {part.folder}: leave one of them out"
            owners[number] = part
    for part in group:
        if part.results.get("status") not in ENDED:
            status = part.results.get("status") or part.record.get("status")
            return f"{_folds(part.folds, of)} not finished ({status}): onn-run resume={part.folder}"
        for what, mine, theirs in (
            ("data", part.split.get("fingerprint"), first.split.get("fingerprint")),
            ("code", part.record.get("code"), first.record.get("code")),
        ):
            if mine != theirs:
                return f"{part.folder} was computed with other {what} than {first.folder}: train one of them anew"
    missing = sorted(set(range(of)) - set(owners))
    return f"{_folds(missing, of)} missing" if missing else ""


def _folds(numbers: Sequence[int], of: int) -> str:
    """`fold 1 of 3 is`, `folds 0 and 2 of 3 are`"""
    from onn_runner.report.table import part_words

    return f"{part_words({'folds': numbers, 'of': of})} {'are' if len(numbers) > 1 else 'is'}"


def key_of(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]
