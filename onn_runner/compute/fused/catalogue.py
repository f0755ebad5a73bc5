"""Which operators and pools the fused kernels know: exactly the catalogue's own classes, with their parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onn_runner.ops import gop, nodal, pool
from onn_runner.ops.base import Nodal, Pool

Operator = tuple[str, tuple[float, ...]]
"""The name that `psi` knows it by, and its parameters in the order used there."""

_OPERATORS: dict[type[Nodal], Callable[[Any], Operator]] = {
    nodal.Multiply: lambda o: ("mul", ()),
    nodal.Cubic: lambda o: ("cubic", (o.k,)),
    nodal.Quadratic: lambda o: ("quadratic", (o.k,)),
    nodal.Sine: lambda o: ("sine", (o.k,)),
    nodal.Exponential: lambda o: ("exp", ()),
    nodal.Sinh: lambda o: ("sinh", (o.k,)),
    nodal.Sinc: lambda o: ("sinc", (o.k, o.a * o.k)),
    nodal.Chirp: lambda o: ("chirp", (o.k,)),
    nodal.Gaussian: lambda o: ("gaussian", (o.scale,)),
    nodal.DoG: lambda o: ("dog", (o.scale,)),
    nodal.Log: lambda o: ("log", (o.a / o.b, o.FLOOR / o.b, math.log(o.b))),
    gop.Exponential: lambda o: ("gop_exp", ()),
    gop.Quadratic: lambda o: ("gop_quadratic", (o.k,)),
    gop.Gaussian: lambda o: ("gop_gaussian", (o.k,)),
    gop.DoG: lambda o: ("gop_dog", (o.k,)),
}
_POOLS: dict[type[Pool], str] = {
    pool.Sum: "sum",
    pool.Mean: "sum",
    pool.Maximum: "maximum",
    pool.Minimum: "minimum",
    pool.Median: "median",
}


def operator(nodal: Nodal) -> Operator | None:
    """None for an operator of the user, a subclass of one of ours included: it may compute anything."""
    describe = _OPERATORS.get(type(nodal))
    if describe is None:
        return None
    name, parameters = describe(nodal)
    return name, tuple(float(p) for p in parameters)


def pooling(pool: Pool) -> str | None:
    """How the kernels pool: sum, maximum, minimum or median; None for any other pool. The mean is a scaled sum."""
    return _POOLS.get(type(pool))
