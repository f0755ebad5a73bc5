"""Which code computes: the version, and a digest of the sources that numbers depend on, a user's own too."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from onn_runner import __version__

PACKAGE = Path(__file__).parent
WITHOUT_NUMBERS = (
    *("cli", "report", "study", "analysis", "overview.py", "illustration.py", "class_pictures.py"),
    *("code_version.py", "errors.py", "locking.py", "plain.py", "resumption.py", "storage.py", "targets.py"),
    "terminal.py",
)
"""Parts of the package that no result depends on: a change there leaves finished runs what they are."""
LIBRARIES = ("onn_runner", "torch", "torchvision", "torchmetrics", "timm")
"""Packages whose versions a run records; sources elsewhere that a config names are read."""
DIGITS = 10


def code_version(config: Mapping[str, Any]) -> str:
    """`0.1.0+4c1d9e02ab`: the same text, the same numbers, as far as this package and the config's own modules decide.

    `config`: the plain config of a run; modules of a user's that its `_target_`s name count with their sources.
    """
    digest = hashlib.blake2b(_own_sources().encode(), digest_size=DIGITS // 2)
    for name in sorted({target.partition(".")[0] for target in targets(config)} - set(LIBRARIES)):
        for path in _files_of(name):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()}"


def targets(node: Any) -> Iterator[str]:
    """Every `_target_` in nested containers."""
    if isinstance(node, Mapping):
        if isinstance(node.get("_target_"), str):
            yield node["_target_"]
        for value in node.values():
            yield from targets(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from targets(value)


@functools.cache
def _own_sources() -> str:
    digest = hashlib.blake2b()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] not in WITHOUT_NUMBERS:
            digest.update(place.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _files_of(name: str) -> Iterable[Path]:
    """The sources of a top-level module, found without importing it; none for what is not there or is no source."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ()
    if spec is None or spec.origin is None:
        return ()
    origin = Path(spec.origin)
    if spec.submodule_search_locations:
        return sorted(origin.parent.rglob("*.py"))
    return (origin,) if origin.suffix == ".py" else ()
