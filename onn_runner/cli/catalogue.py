"""Which groups and options the config folders hold, and the line that each option says about itself."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onn_runner.checks import path_of
from onn_runner.errors import ConfigError, unknown

CONFIG_NAME = "config"


def config_folder() -> Path:
    """The product's conf/: inside the package in a wheel, beside it in a source tree."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / f"{CONFIG_NAME}.yaml").is_file():
            return folder
    raise ConfigError(f"no conf/ in {package} or beside it: the installation is incomplete; install onn-runner again")


def user_folder(path: str, *, flag: str = "--config-dir") -> Path:
    """The folder of a flag, absolute. Raises ConfigError where there is none."""
    folder = path_of(path).resolve()
    if not folder.is_dir():
        raise ConfigError(f"{flag} {path}: there is no such folder")
    return folder


@dataclass(frozen=True)
class Catalogue:
    """The options of several config folders; where two have the same option, the first counts, as in Hydra."""

    folders: tuple[Path, ...]

    @functools.cached_property
    def groups(self) -> Mapping[str, Mapping[str, Path]]:
        """group -> option -> yaml file, sorted; nested groups as "a/b", Hydra's own left out."""
        found: dict[str, dict[str, Path]] = {}
        for folder in self.folders:
            for path in sorted(folder.rglob("*.yaml")):
                group = path.parent.relative_to(folder).as_posix()
                if group != "." and not group.startswith("hydra"):
                    found.setdefault(group, {}).setdefault(path.stem, path)
        return {group: dict(sorted(options.items())) for group, options in sorted(found.items())}

    def options(self, group: str) -> Mapping[str, Path]:
        return self.groups.get(group, {})

    def require(self, group: str, option: str) -> Path:
        """The file of an option. Raises ConfigError with the closest options."""
        options = self.options(group)
        if option not in options:
            raise unknown(LABELS.get(group, group), option, options)
        return options[option]

    def node(self, group: str, option: str) -> Mapping[str, Any]:
        """The content of an option's file, interpolations unresolved."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        path = self.require(group, option)
        try:
            content = OmegaConf.to_container(OmegaConf.load(path))
        except (YAMLError, OmegaConfBaseException) as error:
            raise ConfigError(f"{path}: not readable as a config file ({' '.join(str(error).split())})") from error
        return {str(key): value for key, value in content.items()} if isinstance(content, dict) else {}


LABELS = {"ops": "operator", "operators": "preset of operators"}
"""What an option of a group is called in a message, where that is not the group's own name."""


def first_comment(path: Path) -> str:
    """The first comment of a yaml after its optional `# @package` line: when to choose this option."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("# ").strip()
        if text and not text.startswith("@package"):
            return text
    return ""


def describe(options: Mapping[str, Path]) -> Sequence[tuple[str, str]]:
    """(option, its line) of a group."""
    return [(name, first_comment(path)) for name, path in options.items()]
