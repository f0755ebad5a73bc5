"""Every pool against plain Python on lists, for the usual and the awkward numbers of taps."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from onn_runner.errors import ConfigError
from onn_runner.ops import Correlation2, Correlation3, Maximum, Mean, Median, Minimum, Sum, named
from onn_runner.seeding import generator

DEFINITIONS: dict[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "mean": lambda taps: math.fsum(taps) / len(taps),
    "median": lambda taps: sorted(taps)[(len(taps) - 1) // 2],
    "maximum": lambda taps: sorted(taps)[-1],
    "minimum": lambda taps: sorted(taps)[0],
    "correlation2": lambda taps: math.fsum(a * b for a, b in pairwise(taps)),
    "correlation3": lambda taps: math.fsum(a * b * c for a, b, c in zip(taps, taps[1:], taps[2:], strict=False)),
}
LEAST = {"correlation2": 2, "correlation3": 3}


CASES = [(name, taps) for name in DEFINITIONS for taps in (1, 2, 3, 4, 9, 25, 49) if taps >= LEAST.get(name, 1)]


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("name", "taps"), CASES)
def test_equals_its_definition_on_any_axis(name: str, taps: int, scaled: bool) -> None:
    values = torch.randn(3, 5, taps, generator=generator("pool", taps), dtype=torch.float64)
    pool = named(name, scale_by_taps=scaled)
    expected = torch.tensor([[DEFINITIONS[name](row) for row in rows] for rows in values.tolist()], dtype=torch.float64)
    expected = expected * (taps if scaled else 1)
    # sums of at most 49 products in another order
    for dim in (0, 1, 2, -1):
        torch.testing.assert_close(pool(values.movedim(2, dim), dim), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_gradcheck(name: str) -> None:
    values = torch.randn(2, 6, 3, generator=generator("gradcheck"), dtype=torch.float64, requires_grad=True)
    pool = named(name, scale_by_taps=True)
    assert torch.autograd.gradcheck(lambda v: pool(v, 1), (values,))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_nan_is_not_lost(name: str) -> None:
    values = torch.tensor([1.0, math.nan, 2.0, 3.0, -1.0])
    assert named(name)(values, 0).isnan()


@pytest.mark.parametrize("name", ["sum", "maximum", "mean"])
def test_infinity_is_not_lost(name: str) -> None:
    assert named(name)(torch.tensor([1.0, math.inf, 2.0]), 0).item() == math.inf


@pytest.mark.parametrize("name", ["median", "maximum", "minimum"])
def test_among_equal_taps_one_takes_the_gradient(name: str) -> None:
    values = torch.ones(4, requires_grad=True)
    (slope,) = torch.autograd.grad(named(name)(values, 0), values)
    assert sorted(slope.tolist()) == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(("name", "taps"), [("correlation2", 1), ("correlation3", 1), ("correlation3", 2)])
def test_correlations_refuse_too_few_taps(name: str, taps: int) -> None:
    with pytest.raises(
        ConfigError, match=rf"{name} multiplies {LEAST[name]} neighbouring taps and the kernel has {taps}"
    ):
        named(name)(torch.ones(5, taps), 1)


def test_names_and_short_names() -> None:
    kinds = (Sum, Mean, Median, Maximum, Minimum, Correlation2, Correlation3)
    assert [type(named(kind.name)) for kind in kinds] == list(kinds)
    assert named("max") == Maximum()
    assert named("min", scale_by_taps=True) == Minimum(scale_by_taps=True)
    assert hash(named("max")) == hash(Maximum())


@pytest.mark.parametrize("name", ["medain", "", "Sum", None, 3])
def test_a_misspelt_pool_gets_the_options(name: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown pool .*Options: correlation2, correlation3, maximum, mean, median"):
        named(name)


def test_a_misspelt_pool_gets_the_closest_first() -> None:
    with pytest.raises(ConfigError, match=r"unknown pool 'medain'\. Did you mean median"):
        named("medain")


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_refuses_another_scale_by_taps(value: bool) -> None:
    with pytest.raises(ConfigError, match="scale_by_taps of the pool median is true or false, not"):
        named("median", scale_by_taps=value)
