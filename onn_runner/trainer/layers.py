"""Every operational layer of a network against the definition in float64, at what it sees of a batch."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from onn_runner import compute as kernels
from onn_runner.compute import Memory
from onn_runner.errors import RunError
from onn_runner.model import padding
from onn_runner.model.operational import OperationalLayer
from onn_runner.task.base import Task
from onn_runner.trainer.batches import Batch
from onn_runner.trainer.engine import Engine

PROMISED = 1e-6
"""The relative error of a kernel's outputs, per channel, in single precision."""
PLAIN = 2.0
"""Or so many times that of plain evaluation in single precision."""
VALUES = 2**24
"""Numbers that the definition may unfold at once; of larger batches the first items are compared."""


def compare_layers(engine: Engine, task: Task, batch: Batch) -> None:
    """Run the batch through a copy of the network, so that nothing of the training depends on it.

    Raises RunError, naming the layer, its kernel and both errors, where a layer is less exact than promised.
    """
    network = copy.deepcopy(engine.network).train()
    hooks = [
        layer.register_forward_hook(_watcher(name))
        for name, layer in network.named_modules()
        if isinstance(layer, OperationalLayer)
    ]
    if hooks:
        with torch.no_grad():
            task.eval_step(engine.in_precision(network), batch)


def _watcher(name: str) -> Any:
    def watch(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(layer, OperationalLayer)
        with torch.autocast(inputs[0].device.type, enabled=False):
            _compare(name, layer, inputs[0].float())

    return watch


def _compare(
    name: str,
    layer: OperationalLayer,
    x: Tensor,  # [B, C, *S]
) -> None:
    seen, weight = padding.pad(x, layer.spec), layer.nodal_weight().float()
    memory = Memory(requested=layer.memory.requested, training=layer.training)
    memory.restore(layer.memory.plain())
    y = kernels.run(layer.call, seen, weight, layer.gain, None, memory)
    first = seen[: max(1, VALUES // max(1, seen[0].numel() * weight[0, 0].numel()))]
    exact, plain = (_defined(layer, first, weight, dtype) for dtype in (torch.float64, torch.float32))
    # An item alone may be small where the batch is not: the errors refer to the whole batch.
    size = _per_channel(y.double()).clamp_min(torch.finfo(torch.float32).tiny)
    error = _per_channel(y[: len(first)].double() - exact) / size
    allowed = torch.clamp(PLAIN * _per_channel(plain - exact) / size, min=PROMISED)
    if not bool((error <= allowed).all()):
        channel = int((error / allowed).argmax())
        raise RunError(
            f"trainer.checks: layer {name}, channel {channel}, computed by {memory.chosen}, differs from its "
            f"definition by {float(error[channel]):.1e} of its size, more than the {float(allowed[channel]):.1e} that "
            "are promised: use compute=tapwise, and report it."
        )


def _defined(layer: OperationalLayer, x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    gain = None if layer.gain is None else layer.gain.to(dtype)
    return kernels.run(layer.call, x.to(dtype), weight.to(dtype), gain, None, Memory(requested="reference")).double()


def _per_channel(y: Tensor) -> Tensor:  # [B, O, *S'] -> [O]
    return y.transpose(0, 1).flatten(1).square().mean(1).sqrt()
