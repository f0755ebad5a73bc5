"""Plain containers from JSON and YAML files that anybody may have written: within bounds, or one sentence why not."""

from __future__ import annotations

import json
import unicodedata
import zipfile
from pathlib import Path
from stat import S_ISREG
from typing import Any

from onn_runner.errors import ConfigError

LARGEST_JSON = 256 * 2**20
"""Bytes: a split of ten million items has as many."""
LARGEST_YAML = 4 * 2**20
MOST_NODES = 1_000_000
"""Values in a YAML file after its references (*a) are replaced by what they stand for."""
DEEPEST = 100
"""Containers in containers."""


def read_json(path: Path) -> Any:
    """Raises ConfigError for a file that is missing, damaged, no file, too large or too deep."""
    text = _text(path, LARGEST_JSON)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error


def read_yaml(path: Path) -> Any:
    """As `read_json`; also where references make the content huge or endless, or tags ask for objects of Python."""
    import yaml

    text = _text(path, LARGEST_YAML)
    # These know numbers, texts and containers and make no objects; the one in C is faster, where it is there.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(text, loader)
        _count(content, {}, ())
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise _unreadable(path, error) from error
    return content


def printable(text: str) -> str:
    """`text` without what steers a terminal: escape sequences, carriage returns, signs that reverse the direction."""
    return "".join(char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf") else "�" for char in text)


def _text(path: Path, most: int) -> str:
    try:
        found = path.stat()
        # A pipe would be waited for.
        if not S_ISREG(found.st_mode):
            raise ConfigError(f"{path} is no file")
        if found.st_size > most:
            raise ConfigError(f"{path} has {found.st_size:,} bytes, where at most {most:,} are read")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ConfigError:
    if isinstance(error, RecursionError):
        return ConfigError(f"{path} cannot be read (more than {DEEPEST} containers in one another)")
    return ConfigError(f"{path} cannot be read ({printable(' '.join(str(error).split()))})")


def _count(value: Any, known: dict[int, int], above: tuple[int, ...]) -> int:
    """Values in `value`, one that is referred to as often as it is; `known` keeps what was counted."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) in above:
        raise ValueError("it contains itself")
    if len(above) == DEEPEST:
        raise RecursionError
    if id(value) not in known:
        parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(part, known, (*above, id(value))) for part in parts)
        if known[id(value)] > MOST_NODES:
            raise ValueError(f"with its references replaced it has more than {MOST_NODES:,} values")
    return known[id(value)]


def not_tensors(error: BaseException) -> str:
    """Why torch did not read a file, in one line, without its advice to read it in a way that runs code."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    if isinstance(error, LookupError | AttributeError | TypeError):
        return "it is no file of torch"
    if "weights only" in line.lower() or "weights_only" in line:
        return "it holds objects of Python, which can run code when they are loaded; here only tensors and numbers are"
    return printable(line)


def refuse_packed(path: Path) -> None:
    """Raises ValueError for a zip file that would take more memory than disk: torch and this package never pack.

    Also for what is no file, such as a pipe, which would be waited for.
    """
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if packed or sum(member.file_size for member in members) > path.stat().st_size:
        raise ValueError(
            "its parts are packed, as torch does not do it: they would take more memory than the file says"
        )
