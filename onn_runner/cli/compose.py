"""The one Hydra object of a process, and its complaints as single sentences."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from onn_runner.cli import resolvers, sources
from onn_runner.cli.argv import Command
from onn_runner.errors import ConfigError


@contextlib.contextmanager
def hydra_of(command: Command) -> Iterator[Hydra]:
    """Hydra over the command's config folders, as `@hydra.main` makes it; cleared at the end."""
    version.setbase("1.3")
    resolvers.register()
    main, *user = command.folders
    search_path = create_automatic_config_search_path(None, None, str(main))
    for folder in user:
        search_path.prepend(
            provider="command-line", path=f"file://{folder}", anchor=SearchPathQuery(provider="schema", path=None)
        )
    GlobalHydra.instance().clear()
    try:
        with sources.checked():
            with translated():
                hydra = Hydra.create_main_hydra2("onn-run", search_path)
            yield hydra
    finally:
        GlobalHydra.instance().clear()
        HydraConfig.instance().cfg = None


def compose(hydra: Hydra, command: Command, overrides: Sequence[str]) -> DictConfig:
    """The config of one run, with its hydra node. Raises ConfigError in one sentence."""
    try:
        with translated():
            return hydra.compose_config(
                config_name=command.name, overrides=list(overrides), run_mode=RunMode.RUN, with_log_configuration=False
            )
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(sentence(error)) from error


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Hydra's, OmegaConf's and yaml's errors become ConfigErrors."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(sentence(error)) from error


def sentence(error: BaseException) -> str:
    """What an error of Hydra's says, without search paths, object types and hints for Hydra's developers."""
    texts = [str(error)]
    if error.__cause__ is not None:
        texts.append(str(error.__cause__))
    lines = []
    for text in texts:
        text = re.split(r"\n\s*(?:Config search path|Search path|full_key|object_type|reference_type|See )", text)[0]
        line = " ".join(text.split())
        if line and line not in lines:
            lines.append(line)
    return ": ".join(lines) or type(error).__name__
