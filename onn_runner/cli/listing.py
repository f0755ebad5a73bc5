"""`onn list`: what can be chosen, one line each, and the keys of one option with their comments; from conf/ alone."""

from __future__ import annotations

import difflib
from pathlib import Path

from onn_runner.cli.catalogue import Catalogue, config_folder, describe, user_folder
from onn_runner.errors import unknown

KINDS = {
    "operators": "ops",
    "models": "model",
    "networks": "network",
    "data": "data",
    "partitions": "partition",
    "metrics": "metric",
    "tasks": "task",
    "computations": "compute",
    "presets": "operators",
    "optimizers": "optimizer",
    "schedulers": "scheduler",
    "trainers": "trainer",
    "experiments": "experiment",
    "baselines": "baseline",
}
"""Word -> group; the words that are not a group's own name say it in the plural."""


def lines(kind: str | None, config_dir: str | None) -> list[str]:
    """The listing of one kind, or of all. Raises ConfigError for an unknown word."""
    catalogue = _catalogue(config_dir)
    kinds = _kinds(catalogue)
    chosen = kinds if kind is None else {word: kinds[word] for word in [_word(kind, kinds)]}
    found: list[str] = []
    for word, group in chosen.items():
        options = catalogue.options(group)
        width = max(map(len, options))
        found += ["", f"{word} ({group}=...)"] if kind is None else []
        found += [f"  {name:<{width}}  {line}".rstrip() for name, line in describe(options)]
    return found[1:] if kind is None else found


def keys(kind: str, option: str, config_dir: str | None) -> str:
    """The file of an option as it is, with a comment on its keys. Raises ConfigError for an unknown word or option."""
    catalogue = _catalogue(config_dir)
    group = _kinds(catalogue)[_word(kind, _kinds(catalogue))]
    text = catalogue.require(group, option).read_text(encoding="utf-8").rstrip()
    return (
        text if text.startswith("# @package _global_") else f"# onn-run {group}={option} {group}.<key>=<value>\n{text}"
    )


def _catalogue(config_dir: str | None) -> Catalogue:
    folders: list[Path] = [config_folder()]
    if config_dir is not None:
        folders.append(user_folder(config_dir))
    return Catalogue(tuple(folders))


def _kinds(catalogue: Catalogue) -> dict[str, str]:
    """Word -> group, of the groups that have options; a user's own groups too."""
    kinds = {word: group for word, group in KINDS.items() if catalogue.options(group)}
    return kinds | {group: group for group in catalogue.groups if group not in KINDS.values()}


def _word(kind: str, kinds: dict[str, str]) -> str:
    """The listed word that `kind` means: itself, its singular, or the name of its group."""
    if kind in kinds:
        return kind
    for word, group in kinds.items():
        if kind in (group, word.removesuffix("s")):
            return word
    close = difflib.get_close_matches(kind, kinds, n=1)
    raise unknown("kind", kind, kinds, remedy=f"Try: onn list {close[0] if close else 'operators'}")
