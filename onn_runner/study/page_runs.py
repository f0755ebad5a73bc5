"""What a study's page tells of runs: each with its command, those that do not count, what they were made with."""

from __future__ import annotations

from dataclasses import dataclass

from onn_runner.report.table import words as in_words
from onn_runner.study.files import Files
from onn_runner.study.page_view import View
from onn_runner.study.records import Run

VERSIONS = ("onn-runner", "python", "torch", "system")


@dataclass(frozen=True)
class RunLine:
    """A run with the command that repeats it."""

    method: str
    seed: str
    status: str
    reason: str
    folds: str
    folder: str
    command: str


def run_lines(view: View) -> list[RunLine]:
    """The runs that are counted, in the order of the methods."""
    return [_run_line(run, f"{row.number} {row.label}") for row, run in view.runs()]


def failure_lines(view: View) -> list[RunLine]:
    """What is not counted, with the reason."""
    owners = {run.folder: row for row in view.rows for run in row.method.left_out}
    return [
        _run_line(run, f"{owners[run.folder].number} {owners[run.folder].label}" if run.folder in owners else run.name)
        for run in view.study.failures
    ]


def _run_line(run: Run, method: str) -> RunLine:
    folds = "-" if run.folds_planned is None else f"{run.folds_done} of {run.folds_planned}"
    seed = "-" if run.seed is None else str(run.seed)
    return RunLine(method, seed, run.status, run.reason, folds, str(run.folder), run.command)


def provenance(view: View) -> list[tuple[str, list[tuple[str, int]]]]:
    """What the counted runs were computed with: (what, values with the number of runs of each)."""
    runs, files = [run for _, run in view.runs()], Files()
    versions: dict[str, dict[str, int]] = {}
    for run in runs:
        record = files.json(run.folder / "run.json") or {}
        told = record.get("versions")
        for name in VERSIONS if isinstance(told, dict) else ():
            _add(versions.setdefault(name, {}), told.get(name))  # type: ignore[union-attr]
        git = record.get("git")
        if isinstance(git, dict):
            _add(versions.setdefault("git", {}), f"{git.get('commit')}{', modified' if git.get('modified') else ''}")
    code: dict[str, int] = {}
    data: dict[str, int] = {}
    for run in runs:
        _add(code, run.code or "not recorded")
        _add(data, run.fingerprint or "not recorded")
    found = [("code (version and digest)", code), ("data (fingerprint)", data), *versions.items()]
    return [(name, list(counts.items())) for name, counts in found if counts]


def _add(counts: dict[str, int], value: object) -> None:
    text = str(value)
    counts[text] = counts.get(text, 0) + 1


def facts(view: View) -> list[tuple[str, str]]:
    """The study in a few words: (what, how much of it)."""
    runs = [run for _, run in view.runs()]
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    folds = sorted({len(s.folds) for s in view.summaries.values() if s.folds})
    models = sum(row.method.kind == "model" for row in view.rows)
    others = [
        f"{count} {word}{'s' * (count != 1)}"
        for kind, word in (("twin", "twin"), ("untrained", "untrained baseline"))
        if (count := sum(row.method.kind == kind for row in view.rows))
    ]
    found = [
        ("methods", f"{models}" + (f" and {', '.join(others)}" if others else "")),
        ("runs", f"{len(runs)} counted, {len(view.study.failures)} not counted"),
        ("seeds", ", ".join(map(str, seeds)) if len(seeds) <= 12 else f"{len(seeds)}"),
        ("folds", " or ".join(map(str, folds)) or "-"),
        ("epoch chosen by", view.study.monitor),
    ]
    if view.key is not None:
        direction = {True: ", higher is better", False: ", lower is better", None: ""}[view.higher(view.key)]
        found.append(("methods ordered by", in_words(view.key.partition("/")[2]) + direction))
    if view.baseline is not None:
        found.append(("compared with", view.baseline))
    return [(name, text) for name, text in found if text]
