"""Config files of other folders than the product's, looked at before Hydra makes anything of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult

from onn_runner import plain
from onn_runner.cli.catalogue import config_folder
from onn_runner.cli.interpolation import foreign
from onn_runner.errors import ConfigError


class CheckedFiles(FileConfigSource):
    """Raises ConfigError for a file that is huge, outside its folder, or says what only the command line may say."""

    def load_config(self, config_path: str) -> ConfigResult:
        folder, name = Path(self.path), self._normalize_file_name(config_path)
        if ".." in PurePosixPath(name.replace("\\", "/")).parts or Path(name).is_absolute():
            raise ConfigError(f"{folder}: the option {plain.printable(name)} would lie outside the folder")
        if folder.resolve() != config_folder().resolve() and (folder / name).exists():
            check(folder / name)
        return super().load_config(config_path)


# Hydra's registry tells classes apart by this name: where launchers start processes, it registers its own class after
# ours came with the state of the main process, and would take the two for a conflict.
CheckedFiles.__name__ = FileConfigSource.__name__


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Hydra reads folders like this until the end of the block, and in processes that are started in it."""
    # What Hydra brings is registered first; there is no other way to take the place of it.
    Plugins.instance()
    types = SourcesRegistry.instance().types
    before = types["file"]
    types["file"] = CheckedFiles
    try:
        yield
    finally:
        types["file"] = before


def check(path: Path) -> None:
    """Raises ConfigError for a config file that may not be taken, with the reason."""
    content = plain.read_yaml(path)
    if isinstance(content, dict) and _holds(content, "searchpath"):
        raise ConfigError(f"{path} sets hydra.searchpath, which only the command line may: hydra.searchpath=[...]")
    for text in _texts(content):
        reference = foreign(text)
        if reference is not None:
            raise ConfigError(
                f"{path}: {plain.printable(reference)} reads more than the config, which only the command line may: "
                "type the key with its value"
            )


def _holds(content: dict[Any, Any], key: str) -> bool:
    """hydra.<key>, written as one word or as two."""
    inner = content.get("hydra")
    return f"hydra.{key}" in content or (isinstance(inner, dict) and key in inner)


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(content, list):
        for value in content:
            yield from _texts(value)
