"""Runs of some folds of a partition: counted once, in the whole run that they were joined to; else left out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Sequence
from dataclasses import replace

from onn_runner.study import labels
from onn_runner.study.records import Run
from onn_runner.study.scores import whole

ONLY = "partition.only="


def folds_digest(run: Run) -> str:
    """The same text for the same folds."""
    folds = run.split["folds"] if run.split else None
    return hashlib.blake2b(json.dumps(folds, sort_keys=True).encode(), digest_size=8).hexdigest()


def without_parts(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Runs without those that hold some folds of another one in the study, and what the reader should know.

    Parts of one run that were not joined are kept, with the reason for which they do not count.
    """
    entire = {_identity(run) for run in runs if run.config and not is_part(run) and whole(run)}
    divided = _divided(runs)
    kept, covered = [], 0
    for run in runs:
        if not is_part(run):
            kept.append(run)
        elif _identity(run) in entire:
            covered += 1
        elif {_identity(run), _asked_for(run)} & divided:
            reason = run.reason or f"{which(run)}, not joined with the others (onn join)"
            kept.append(replace(run, reason=reason, whole=False))
        else:
            kept.append(run)
    counted = f"{covered} runs of single folds are counted once, in the runs that they were joined to"
    return kept, [counted] if covered else []


def _divided(runs: Sequence[Run]) -> set[Hashable]:
    """What several runs of other folds are of: by their configs, and by what was typed where some have not begun."""
    chosen: dict[Hashable, set[str]] = {}
    for run in runs:
        if is_part(run):
            chosen.setdefault(_identity(run), set()).add(folds_digest(run))
        only = [text for text in run.overrides if text.startswith(ONLY)]
        chosen.setdefault(_asked_for(run), set()).update(only[-1:])
    return {key for key, folds in chosen.items() if len(folds) > 1}


def _asked_for(run: Run) -> Hashable:
    return (typed(run), run.seed)


def is_part(run: Run) -> bool:
    """Whether the partition has folds that the run does not train."""
    of = (run.split or {}).get("of")
    return isinstance(of, int) and of > len((run.split or {})["folds"])


def which(run: Run) -> str:
    """`folds 0, 2 of 5 only`"""
    numbers = [str(fold["index"]) for fold in (run.split or {})["folds"]]
    return f"fold{'s' * (len(numbers) > 1)} {', '.join(numbers)} of {(run.split or {})['of']} only"


def _identity(run: Run) -> Hashable:
    return (repr(sorted(labels.flat(run.config).items())), run.seed, run.fingerprint)


def typed(run: Run) -> frozenset[str]:
    """What was asked for, but seed and folds."""
    return frozenset(text for text in run.overrides if not text.startswith(("seed=", ONLY)))
