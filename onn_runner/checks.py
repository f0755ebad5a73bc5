"""Values from a config, checked: the value, or one sentence on key, value and what it may be; counts in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from onn_runner.errors import ConfigError, unknown


def refuse(key: str, value: object, wanted: str) -> ConfigError:
    return ConfigError(f"{key} (={value!r}) must be {wanted}")


def amount(count: int, noun: str, *, several: str = "") -> str:
    """`1 fold`, `1,250 folds`; `several`: the plural where it is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else several or f'{noun}s'}"


def whole_number(key: str, value: object, *, least: int, wanted: str = "") -> int:
    """An int of at least `least`; booleans, strings and fractions are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refuse(key, value, wanted or f"a whole number of at least {least}")
    return value


def positive(key: str, value: object, wanted: str, *, most: float = math.inf) -> float:
    """A finite number in (0, most]; booleans and strings are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(key, value, wanted)
    if not math.isfinite(value) or not 0 < value <= most:
        raise refuse(key, value, wanted)
    return float(value)


def flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise refuse(key, value, "true or false")
    return value


def choice(key: str, value: object, options: Iterable[str]) -> str:
    options = list(options)
    if not isinstance(value, str):
        raise refuse(key, value, f"one of {', '.join(options)}")
    if value not in options:
        raise unknown(key, value, options)
    return value


def pair(key: str, value: object, *, least: int) -> tuple[int, int]:
    """(height, width) from one number or a list of two."""
    wanted = f"a whole number of at least {least}, or two: [height, width]"
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 2:
            raise refuse(key, list(value), wanted)
        height, width = value
    else:
        height = width = value
    return whole_number(key, height, least=least, wanted=wanted), whole_number(key, width, least=least, wanted=wanted)


def path_of(text: str | Path) -> Path:
    """The path with ~ and ~name as a user's folder; where there is no such user, ~name is a name like others."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
