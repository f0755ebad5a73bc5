"""What is behind the tensors of torch.func: the values of all elements of a stack, of all transforms at once.

The only place that knows how torch wraps tensors for vmap, grad and jvp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch._functorch import pyfunctorch
from torch.autograd import forward_ad

_functorch: Any = torch._C._functorch


def active() -> bool:
    """Whether a transform of torch.func runs, or forward-mode differentiation."""
    return _functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Computing with plain tensors as if no transform ran, without gradients."""
    with pyfunctorch.temporarily_clear_interpreter_stack(), torch.inference_mode(False), torch.no_grad():
        yield


def stacks(*tensors: Tensor | None) -> list[Tensor | None]:
    """Each tensor [...] as its values [N, ...] for all N elements of what vmap stacks; to be used `outside`.

    One that is the same for all elements comes expanded; N = 1 without vmap.
    """
    found = [None if t is None else _unwrapped(t) for t in tensors]
    sizes: dict[int, int] = {}
    for entry in found:
        if entry is not None:
            values, levels = entry
            sizes |= {level: values.shape[axis] for axis, level in enumerate(levels)}
    order = sorted(sizes)
    return [None if entry is None else _aligned(*entry, order, sizes) for entry in found]


def _unwrapped(tensor: Tensor) -> tuple[Tensor, list[int]]:
    """The values [*levels, ...] behind a tensor, and which levels of vmap its first axes belong to."""
    axes: list[tuple[str, int]] = [("own", axis) for axis in range(tensor.dim())]
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if _functorch.is_batchedtensor(tensor):
            axes.insert(_functorch.maybe_get_bdim(tensor), ("level", _functorch.maybe_get_level(tensor)))
        tensor = _functorch.get_unwrapped(tensor)
    levels = [number for kind, number in axes if kind == "level"]
    ordered = sorted(range(len(axes)), key=lambda axis: (axes[axis][0] != "level", axes[axis][1]))
    return tensor.detach().permute(ordered), sorted(levels)


def _aligned(values: Tensor, levels: list[int], order: list[int], sizes: dict[int, int]) -> Tensor:
    own = values.shape[len(levels) :]
    for axis, level in enumerate(order):
        if level not in levels:
            values = values.unsqueeze(axis)
    return values.expand(*(sizes[level] for level in order), *own).reshape(-1, *own)
