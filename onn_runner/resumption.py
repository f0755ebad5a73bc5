"""What a resumed run may change: nothing that makes it another experiment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onn_runner.errors import ConfigError

MAY_CHANGE = ("trainer.workers", "trainer.epochs", "trainer.pictures", "name")
"""Keys that a resumed run may change; epochs may only grow."""


def refuse_changes(stored: Mapping[str, Any], *, new: Mapping[str, Any], folder: Path | None) -> None:
    """Raises ConfigError when the config of a resumed run differs from the stored one in more than MAY_CHANGE."""
    before, after = flat(stored), flat(new)
    changed = [key for key in {**before, **after} if before.get(key, "-") != after.get(key, "-")]
    refused = [key for key in changed if key not in MAY_CHANGE]
    if refused:
        what = ", ".join(f"{key} ({before.get(key, '-')} -> {after.get(key, '-')})" for key in refused)
        raise ConfigError(
            f"resume={folder}: these values differ from the run's own: {what}. A resumed run is the same experiment: "
            "only more trainer.epochs, trainer.workers, trainer.pictures and name may change. Leave them out, "
            "or start a new run."
        )
    if "trainer.epochs" in changed and after["trainer.epochs"] < before["trainer.epochs"]:
        raise ConfigError(
            f"resume={folder}: trainer.epochs (={after['trainer.epochs']}) is less than the run's own "
            f"{before['trainer.epochs']}: a resumed run can only train for more epochs"
        )


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    result: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping) and value:
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result
