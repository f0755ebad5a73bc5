"""Parameter groups: which parameters decay, which learn at their own rate, which are frozen."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from onn_runner.errors import ConfigError, unknown
from onn_runner.model.base import Layer
from onn_runner.trainer.settings import Settings

KINDS = ("weight", "quadratic", "bias", "norm", "undecayed")
NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.LocalResponseNorm)


def kinds(network: nn.Module) -> dict[str, str]:
    """Parameter name -> one of KINDS; a Layer says so itself, torch's modules are known."""
    found: dict[str, str] = {}
    for prefix, module in network.named_modules():
        stem = f"{prefix}." if prefix else ""
        for name, parameter in module.named_parameters(recurse=False):
            plain = "norm" if isinstance(module, NORMS) else "bias" if _is_bias(name, parameter) else "weight"
            found.setdefault(stem + name, plain)
    for prefix, module in network.named_modules():
        if isinstance(module, Layer):
            stem = f"{prefix}." if prefix else ""
            found.update({stem + name: kind for name, kind in module.decay_groups().items() if stem + name in found})
    return {name: found[name] for name, _ in network.named_parameters()}


def freeze(network: nn.Module, patterns: tuple[str, ...]) -> None:
    """Parameters whose names fit a pattern stop learning.

    Raises ConfigError for a pattern that fits none, and when nothing is left to learn.
    """
    names = [name for name, _ in network.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(f"trainer.frozen: no parameter is called '{pattern}'. There are: {', '.join(names)}.")
    for name, parameter in network.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ConfigError(f"trainer.frozen={list(patterns)} leaves no parameter to train: freeze fewer.")


def make_optimizer(
    network: nn.Module, build: Callable[[list[dict[str, Any]]], Optimizer], settings: Settings
) -> Optimizer:
    """One optimizer over a group for each kind that there is; terms with a rate or decay of their own follow theirs.

    Raises ConfigError for a term that no layer has.
    """
    names, apart = kinds(network), _terms_apart(network, settings)
    groups: list[dict[str, Any]] = []
    for kind in KINDS:
        for term in ("", *dict.fromkeys(apart.values())):
            chosen = [
                p for name, p in network.named_parameters()
                if names[name] == kind and apart.get(name, "") == term and p.requires_grad
            ]  # fmt: skip
            if chosen:
                groups.append({"params": chosen, "name": f"{kind} {term}".strip()})
    # The first group's rate is the one that is told: one that no term changes, where there is one.
    groups.sort(key=lambda group: " " in group["name"])
    optimizer = build(groups)
    for group in optimizer.param_groups:
        kind, _, term = group["name"].partition(" ")
        if kind == "quadratic":
            group["lr"] *= settings.quadratic_rate
            if settings.quadratic_decay is not None:
                group["weight_decay"] = settings.quadratic_decay
        elif kind in ("bias", "norm") and not settings.decay_all and "weight_decay" in group:
            group["weight_decay"] = 0.0
        group["lr"] *= settings.term_rates.get(term, 1.0)
        if term in settings.term_decays:
            if kind == "undecayed" or "weight_decay" not in group:
                what = (
                    "stands for a 1 that must not decay" if kind == "undecayed" else "meets an optimizer without decay"
                )
                raise ConfigError(f"trainer.term_decays: {term} {what}: leave it out")
            group["weight_decay"] = settings.term_decays[term]
        if kind == "undecayed" and "weight_decay" in group:
            group["weight_decay"] = 0.0
    return optimizer


def _terms_apart(network: nn.Module, settings: Settings) -> dict[str, str]:
    """Parameter name -> its term, where that has a rate or decay of its own."""
    known = {
        (f"{prefix}." if prefix else "") + name: term
        for prefix, module in network.named_modules()
        if isinstance(module, Layer)
        for name, term in module.terms().items()
    }
    for key in ("term_rates", "term_decays"):
        for term in getattr(settings, key):
            if term not in known.values():
                options = sorted(set(known.values()))
                remedy = "" if options else "Only quadratic neurons (model=quadratic) have terms."
                raise unknown(f"term in trainer.{key}, for these neurons:", term, options, remedy=remedy)
    wanted = {*settings.term_rates, *settings.term_decays}
    return {name: term for name, term in known.items() if term in wanted}


def _is_bias(name: str, parameter: nn.Parameter) -> bool:
    return name.endswith("bias") or parameter.ndim <= 1
