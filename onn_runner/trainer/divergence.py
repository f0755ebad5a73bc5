"""The layer where the first value arises that is not finite: the forward pass again, watched by hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from onn_runner.task.base import StepOutput, Task

if TYPE_CHECKING:
    from onn_runner.trainer.engine import Engine


class NonFiniteError(ArithmeticError):
    """A loss or gradient that is not finite; the weights have not been touched by it."""

    def __init__(self, what: str, *, layer: str = "") -> None:
        super().__init__(what)
        self.what, self.layer = what, layer


def locate(network: nn.Module, batch: dict[str, Any], forward: Callable[[], Any]) -> str:
    """Name of the input, the first layer in the forward pass, the loss, or the parameter by its gradient.

    `forward` runs the same step again without updating anything; gradients are those of the step that failed.
    """
    if not _finite(batch["input"]) or not _finite(batch["target"]):
        return f"the data (items {_items(batch)})"
    first: list[str] = []
    hooks = [
        module.register_forward_hook(_watcher(f"{name} ({type(module).__name__})" if name else "the network", first))
        for name, module in network.named_modules()
    ]
    try:
        with torch.no_grad():
            forward()
    finally:
        for hook in hooks:
            hook.remove()
    return first[0] if first else _by_weights(network)


def retrace(engine: Engine, task: Task, batch: dict[str, Any], *, testing: bool) -> str:
    """`locate` for the step or the scoring that failed, done again with the engine as it stands."""
    network = engine.scored if testing else engine.network
    network.train(not testing)

    def again() -> StepOutput:
        if testing:
            return task.eval_step(engine.evaluating, batch)
        return task.train_step(engine.uncompiled, batch, lambda loss, optimizer="main": None)

    return locate(network, batch, again)


def finite_weights(network: nn.Module) -> bool:
    return all(_finite(parameter) for parameter in network.parameters())


def has_running_statistics(network: nn.Module) -> bool:
    """Whether evaluation goes by what norms remember of earlier batches, not by the batch at hand."""
    return any(isinstance(module, _NormBase) and module.track_running_stats for module in network.modules())


def _by_weights(network: nn.Module) -> str:
    """The gradient comes from the output's side: the last parameter that has a bad one is where it began."""
    for name, parameter in reversed(list(network.named_parameters())):
        if not _finite(parameter):
            return f"{name} (weights)"
        if parameter.grad is not None and not _finite(parameter.grad):
            return f"{name} (gradient)"
    return "the loss"


def _watcher(label: str, first: list[str]) -> Callable[[nn.Module, Any, Any], None]:
    # Hooks of inner modules run before those around them, so that the first to see it is the innermost.
    def watch(module: nn.Module, inputs: Any, output: Any) -> None:
        if not first and not _finite(output):
            first.append(label)

    return watch


def _finite(value: Any) -> bool:
    if isinstance(value, Tensor):
        return bool(value.isfinite().all())
    if isinstance(value, list | tuple):
        return all(_finite(item) for item in value)
    return True


def _items(batch: dict[str, Any]) -> str:
    rows = zip(batch["index"], batch["input"], batch["target"], strict=True)
    bad = [str(int(index)) for index, x, y in rows if not (_finite(x) and _finite(y))]
    return ", ".join(bad[:5]) + (", ..." if len(bad) > 5 else "")
