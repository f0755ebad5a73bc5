"""Whether results.json and split.json have what a reader counts on: every index, name and score of its own type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from onn_runner.errors import ConfigError
from onn_runner.partition.split import MOST_FOLDS, from_plain
from onn_runner.report.results import RESULTS_SCHEMA, best_start, divergences

LARGEST_SCORE = 1e150
"""Beyond it squares overflow."""
WRONG = (KeyError, TypeError, ValueError, AttributeError, StopIteration)
"""What reading of a wrong shape raises."""


def of_results(results: Mapping[str, Any]) -> str:
    """What is wrong with results.json; empty where nothing is."""
    if results.get("schema") != RESULTS_SCHEMA:
        return f"has schema {results.get('schema')!r}, this version reads {RESULTS_SCHEMA}"
    try:
        _text(results["monitor"])
        _mappings(results["network"], results["cv"])
        for better in results["higher_is_better"].values():
            if better not in (True, False, None):
                raise ValueError(f"higher_is_better {better!r}")
        _folds(results["folds"])
        if twin := results.get("twin"):
            _text(twin["name"])
            _mappings(twin["network"])
            _folds(twin["folds"])
        for name, row in results["baselines"].items():
            _text(name)
            _mappings(row["cv"])
            for scores in row["folds"]:
                _index(scores["fold"])
                _scores(scores)
    except WRONG as error:
        return f"is damaged ({_short(error)})"
    return ""


def _folds(folds: Any) -> None:
    for fold in folds:
        _index(fold["fold"])
        start = best_start(fold)
        if start is not None:
            _scores(start["test"])
            _scores(start["validation"])
    divergences(folds)


def of_split(split: Mapping[str, Any]) -> str:
    """What is wrong with split.json; empty where nothing is."""
    try:
        if split["fingerprint"] is not None:
            _text(split["fingerprint"])
        from_plain(split)
    except ConfigError as error:
        return f"is damaged ({str(error).removesuffix(': start a new run')})"
    except WRONG as error:
        return f"is damaged ({_short(error)})"
    return ""


def _index(value: Any) -> None:
    if type(value) is not int or not 0 <= value < MOST_FOLDS:
        raise ValueError(f"fold {value!r}")


def _text(value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")


def _mappings(*values: Any) -> None:
    if not all(isinstance(value, Mapping) for value in values):
        raise ValueError("a mapping is missing")


def _scores(scores: Mapping[str, Any]) -> None:
    for key, value in scores.items():
        known = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        if not known or (value is not None and math.isfinite(value) and abs(value) > LARGEST_SCORE):
            raise ValueError(f"{key} {value!r}")


def _short(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:120]
