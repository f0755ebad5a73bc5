"""Why the fused kernels cannot serve a call, a kernel's size, or tensors."""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from onn_runner.compute.base import Call
from onn_runner.compute.fused.catalogue import operator, pooling

MEDIAN_TAPS = 49
"""A thread holds the median's taps twice, and with sinc 49 of them fill its 255 registers; 64 would not fit. Compiling
them takes seconds for 25 taps and up to half a minute for 49, once per machine."""
INDEX_TAPS = 256
"""Taps that one byte can name."""
REACH = 1 << 31
"""Values that 32-bit offsets reach."""


def refuse(call: Call) -> str | None:
    """Why it cannot serve whatever the shapes and values are."""
    if not _installed():
        return "triton is not installed"
    if call.transposed:
        return "there are no fused kernels for transposed layers"
    if pooling(call.pool) is None:
        return f"the pool {call.pool.name or type(call.pool).__name__} has no fused kernel"
    for block in call.blocks:
        if operator(block.nodal) is None:
            return f"{block.name} is not an operator of the catalogue, and only those have fused kernels"
    return None


def refuse_shape(call: Call, kernel: tuple[int, ...]) -> str | None:
    """Why it cannot serve a kernel of that size, for a call that `refuse` accepts."""
    count = math.prod(kernel)
    most = {"sum": count, "median": MEDIAN_TAPS}.get(str(pooling(call.pool)), INDEX_TAPS)
    return None if count <= most else f"the fused {call.pool.name} takes at most {most} taps, not {count}"


def refuse_values(x: Tensor, weight: Tensor) -> str | None:
    """Why it cannot serve these tensors; Triton is installed."""
    if not x.is_cuda and not _interpreted():
        return f"the fused kernels need a CUDA device, and the input is on {x.device}"
    if x.device != weight.device:
        return f"the input is on {x.device} and the weights are on {weight.device}"
    if x.dtype != weight.dtype or x.dtype not in (torch.float32, torch.float64):
        return f"the fused kernels take single or double precision, not {x.dtype} with weights in {weight.dtype}"
    if max(math.prod(x.shape[2:]), weight.numel()) >= REACH:
        return "one plane of the input, or the weights, have 2^31 values or more"
    return None


def why_not(call: Call, x: Tensor, weight: Tensor) -> str | None:
    """The first reason of the three."""
    return refuse(call) or refuse_shape(call, tuple(weight.shape[2:])) or refuse_values(x, weight)


@lru_cache(maxsize=1)
def _installed() -> bool:
    return find_spec("triton") is not None


def _interpreted() -> bool:
    from onn_runner.compute.fused.launch import interpreted

    return interpreted()
