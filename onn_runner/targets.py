"""What a `_target_` names: found without importing code that nobody allowed, and of the kind that its key wants."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onn_runner.errors import ConfigError

LIBRARIES = ("onn_runner", "torch", "torchvision", "torchmetrics", "timm")
"""Top-level packages that a config may name without being asked; importing anything else runs code."""
NAME = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", re.ASCII)
"""Dotted names without private parts: what begins with _ is nobody's to configure."""
BROKEN = (
    *(ImportError, SyntaxError, AttributeError, NameError, TypeError, ValueError, OSError),
    *(RuntimeError, LookupError, ArithmeticError, AssertionError),
)
"""What importing a user's module raises where there is a mistake in it."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What a key wants."""

    wanted: str
    """In words, for messages."""
    packages: tuple[str, ...]
    """Where the libraries' classes of this kind are defined; functions of libraries are never taken."""
    base: str | None = None
    """The class that it derives from."""
    methods: tuple[str, ...] = ()
    """What instances can be asked for, where there is no such class."""
    except_in: tuple[str, ...] = ()
    """Parts of `packages` whose classes fetch files or networks from elsewhere when they are made."""


MODEL = Kind(wanted="a layer factory", packages=("onn_runner.model",), methods=("__call__",))
METRIC = Kind(
    wanted="a torchmetrics.Metric",
    packages=(
        "onn_runner.metric",
        *(f"torchmetrics.{part}" for part in ("aggregation", "classification", "image", "regression", "segmentation")),
        *(f"torchmetrics.audio.{part}" for part in ("sdr", "snr")),
    ),
    base="torchmetrics.Metric",
    except_in=tuple(
        f"torchmetrics.image.{part}"
        for part in ("arniqa", "dists", "fid", "inception", "kid", "lpip", "mifid", "perceptual_path_length")
    ),
)
KINDS = {
    "network": Kind(
        wanted="a torch.nn.Module",
        packages=("onn_runner.network", "torch.nn.modules", "torchvision.models", "torchvision.ops", "timm.models"),
        base="torch.nn.Module",
    ),
    "model": MODEL,
    "baseline": MODEL,
    "operators": Kind(wanted="an operator of onn_runner.ops", packages=("onn_runner.ops",), methods=("__call__",)),
    "optimizer": Kind(
        wanted="a torch.optim.Optimizer",
        packages=("torch.optim", "onn_runner.trainer", "timm.optim"),
        base="torch.optim.Optimizer",
    ),
    "scheduler": Kind(
        wanted="a scheduler of torch.optim.lr_scheduler or of onn_runner.trainer.schedule",
        packages=("torch.optim.lr_scheduler", "onn_runner.trainer.schedule"),
    ),
    "metrics": METRIC,
    "data": Kind(
        wanted="a source of items (onn_runner.data.base.Source)",
        packages=("onn_runner.data",),
        methods=("training", "fixed", "fingerprint"),
    ),
    "partition": Kind(wanted="a partition with split()", packages=("onn_runner.partition",), methods=("split",)),
    "task": Kind(
        wanted="a task with train_step() and eval_step()",
        packages=("onn_runner.task",),
        methods=("train_step", "eval_step"),
    ),
    "trainer": Kind(
        wanted="onn_runner.trainer.settings.Settings",
        packages=("onn_runner.trainer",),
        base="onn_runner.trainer.settings.Settings",
    ),
}
"""By the first part of a key: what its own `_target_` may be."""
NESTED = {
    "network": Kind(wanted="a torch.nn.Module", packages=("torch.nn.modules",), base="torch.nn.Module"),
    "data": Kind(
        wanted="a transform of torchvision.transforms",
        packages=("torchvision.transforms",),
        methods=("__call__",),
    ),
    "task": Kind(wanted="a loss of torch.nn", packages=("torch.nn.modules.loss",), base="torch.nn.Module"),
    "metrics": METRIC,
}
"""By the first part of a key: what a `_target_` further inside may be, where the libraries have something for it."""

_named: tuple[str, ...] = ()


def names(typed: Sequence[str] | None) -> tuple[str, ...]:
    """What --module was given, once or several times: names with commas between them."""
    return tuple(dict.fromkeys(name for text in typed or () for name in text.split(",")))


def allow(modules: Sequence[str]) -> None:
    """From now on these modules, and no others, are the user's own: found in the working directory as well.

    Raises ConfigError for what is no module's name, is part of Python itself, or cannot be found.
    """
    global _named
    for name in modules:
        top = name.partition(".")[0]
        if NAME.fullmatch(name) is None:
            raise ConfigError(f"--module {name!r} must be the name of a module, such as my_ops or my_package.layers")
        if top in sys.stdlib_module_names or top in LIBRARIES:
            raise ConfigError(f"--module {name}: that is no module of your own; name one that you wrote and trust")
    if modules and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for name in modules:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise ConfigError(f"--module {name}: there is no such module in the working directory or installed")
    _named = tuple(modules)


def allowed() -> tuple[str, ...]:
    """The user's own modules that were named."""
    return _named


def check(node: Any, key: str) -> None:
    """Raises ConfigError where a `_target_` in `node`, plain containers, is not what `key` may be."""
    head = key.partition(".")[0]
    for place, target, nested in _targets(node, key):
        kind = NESTED.get(head) if nested else KINDS.get(head)
        find(target, place, kind, strict=not nested)


def find(target: object, key: str, kind: Kind | None, *, strict: bool = True) -> Any:
    """The class, or a user's function, that `target` names. Raises ConfigError before anything forbidden is imported.

    `kind`: None where no library has something that fits: only a user's own module may be named.
    `strict`: a user's class must be of the kind as well.
    """
    shown = f"{key}._target_ (={target!s:.200})"
    if not isinstance(target, str) or "." not in target or NAME.fullmatch(target) is None:
        raise ConfigError(f"{shown} must be the name of a class, such as package.module.Name")
    if not _within(target, LIBRARIES) and not _within(target, _named):
        module = target.rpartition(".")[0]
        own = target.partition(".")[0] not in sys.stdlib_module_names
        remedy = f"; if it is yours and you trust it: --module {module}" if own else ""
        raise ConfigError(f"{shown} is neither of {', '.join(LIBRARIES)} nor of a module that you named{remedy}")
    found = _walked(target, shown)
    if _is_users(found):
        return _fitting(found, shown, kind) if strict and isinstance(found, type) and kind is not None else found
    if kind is None or not isinstance(found, type) or not _within(found.__module__, kind.packages):
        what = "a class or function of your own (--module)" if kind is None else kind.wanted
        raise ConfigError(f"{shown} is {_described(found)}, and must be {what}")
    if _within(found.__module__, kind.except_in):
        raise ConfigError(
            f"{shown} loads a network from elsewhere; derive a class in a module of your own (--module) if you want it"
        )
    return _fitting(found, shown, kind)


def _targets(node: Any, key: str, nested: bool = False) -> Iterator[tuple[str, object, bool]]:
    """(key of the node, its target, whether it lies inside another node) of every node with a `_target_`."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield key, node["_target_"], nested
        for name, value in node.items():
            yield from _targets(value, f"{key}.{name}", True)
    elif isinstance(node, list | tuple):
        for number, value in enumerate(node):
            yield from _targets(value, f"{key}[{number}]", True)


def _walked(target: str, shown: str) -> Any:
    """Attribute by attribute, through modules that are allowed and classes; submodules are imported on the way."""
    first, *parts = target.split(".")
    try:
        found: Any = importlib.import_module(first)
        for part in parts:
            if inspect.ismodule(found) and not hasattr(found, part):
                found = importlib.import_module(f"{found.__name__}.{part}")
            else:
                found = getattr(found, part)
            if inspect.ismodule(found) and not _on_the_way(found.__name__):
                raise ConfigError(f"{shown} leads to {found.__name__}, which is not allowed")
    except BROKEN as error:
        if isinstance(error, ConfigError):
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{shown} cannot be found: {text}") from error
    return found


def _on_the_way(module: str) -> bool:
    """Whether it is allowed, or is the package around a module that is: mine of mine.layers."""
    return _within(module, (*LIBRARIES, *_named)) or any(_within(name, (module,)) for name in _named)


def _is_users(found: Any) -> bool:
    """Whether it is a class or function that a module named by the user defines, not one that it only imports."""
    return (isinstance(found, type) or inspect.isfunction(found)) and _within(str(found.__module__), _named)


def _fitting(found: type, shown: str, kind: Kind) -> type:
    base = None if kind.base is None else _walked(kind.base, shown)
    fits = issubclass(found, base) if base is not None else all(callable(_of(found, name)) for name in kind.methods)
    if not fits:
        raise ConfigError(f"{shown} is {_described(found)}, and must be {kind.wanted}")
    return found


def _of(found: type, name: str) -> Any:
    """What instances have: a class itself can be called, which says nothing about them."""
    return next((vars(one)[name] for one in found.__mro__ if name in vars(one)), None)


def _described(found: Any) -> str:
    """`a function of posix`"""
    module = getattr(found, "__module__", None) or type(found).__module__
    if inspect.ismodule(found):
        return "a module"
    what = "a class" if isinstance(found, type) else "a function" if callable(found) else f"a {type(found).__name__}"
    return f"{what} of {module}"


def _within(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
