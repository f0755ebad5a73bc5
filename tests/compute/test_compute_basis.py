"""Pinned Chebyshev polynomials against numpy's; order statistics by network against sorting."""

import math

import numpy as np
import pytest
import torch

from onn_runner.compute.basis import Interval, degree, evaluate, pull_back, signs, transform
from onn_runner.compute.selection import index_of, network, select

CASES = [
    ("odd", Interval(-1.3, 1.3)),
    ("even", Interval(-1.3, 1.3)),
    ("line", Interval(-1.3, 1.3)),
    ("line", Interval(0.0, 1.3)),
    ("line", Interval(-1.3, 0.4)),
]


@pytest.mark.parametrize(("kind", "interval"), CASES)
def test_members_are_chebyshev_polynomials_pinned_at_zero(kind, interval):
    x = torch.linspace(interval.low, interval.high, 101, dtype=torch.float64)
    out = [torch.empty_like(x) for _ in range(9)]
    evaluate(x, interval, kind, out)
    t = (x - interval.centre) / interval.half
    for index, sign in enumerate(signs(kind, 9)):
        r = degree(kind, index)
        pinned = torch.cos(r * torch.acos(t.clamp(-1, 1))) - math.cos(r * math.acos(interval.zero))
        # float64, degrees up to 18: acos loses eps^(1/2) in its argument but not in cos(r acos t)
        torch.testing.assert_close(sign * out[index], pinned, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kind", "interval"), CASES)
def test_pull_back_is_the_derivative(kind, interval):
    x = torch.linspace(interval.low, interval.high, 101, dtype=torch.float64)
    grads = list(torch.randn(7, 101, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    expected = torch.zeros_like(x)
    t = ((x - interval.centre) / interval.half).numpy()
    for index, sign in enumerate(signs(kind, 7)):
        slope = np.polynomial.Chebyshev.basis(degree(kind, index)).deriv()(t)
        expected += sign * grads[index] * torch.from_numpy(slope) / interval.half
    torch.testing.assert_close(pull_back(x, interval, kind, grads), expected, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(("kind", "interval"), CASES)
def test_members_are_as_exact_beside_zero_as_x_itself(kind, interval):
    side = 1.0 if interval.high > 1 else -1.0
    x = side * torch.logspace(-12, -6, 7, dtype=torch.float32)
    out, exact = ([torch.empty_like(x.to(t)) for _ in range(8)] for t in (torch.float32, torch.float64))
    evaluate(x, interval, kind, out)
    evaluate(x.double(), interval, kind, exact)
    for got, true in zip(out, exact, strict=True):
        # each of eight steps of the recurrence may lose about one unit in the last place
        torch.testing.assert_close(got.double(), true, rtol=3e-6, atol=0)


@pytest.mark.parametrize(("kind", "interval"), CASES)
def test_transform_recovers_a_polynomial_in_the_basis(kind, interval):
    points, matrix = transform(kind, 6, interval, torch.device("cpu"))
    assert points[-1] == 0
    coefficients = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    out = [torch.empty_like(points) for _ in range(6)]
    evaluate(points, interval, kind, out)
    values = sum(c * member for c, member in zip(coefficients, out, strict=True))
    torch.testing.assert_close(matrix @ (values[:-1] - values[-1]), coefficients, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 25, 27, 49])
def test_selection_matches_sorting(count):
    values = torch.randn(count, 50, generator=torch.Generator().manual_seed(count))
    for rank in {0, (count - 1) // 2, count // 2, count - 1}:
        best = select(list(values), rank)
        assert torch.equal(best, values.sort(0).values[rank])
        index = index_of(best, list(values))
        assert index.dtype == torch.uint8
        assert torch.equal(values.gather(0, index.long()[None])[0], best)


def test_selection_hands_on_nan():
    for position in range(9):
        values = torch.randn(9, 3)
        values[position, 1] = torch.nan
        best = select(list(values), 4)
        assert best.isnan().tolist() == [False, True, False]


def test_median_network_is_small():
    assert len(network(9, 4)[0]) <= 24


def test_the_first_of_equals_is_taken():
    values = list(torch.tensor([[3.0, 1.0], [1.0, 1.0], [3.0, 0.0], [1.0, 1.0], [2.0, 1.0]]))
    assert index_of(select(values, 4), values).tolist() == [0, 0]
    assert index_of(select(values, 0), values).tolist() == [1, 2]


def test_index_beyond_a_byte():
    values = list(torch.arange(300.0)[:, None])
    assert index_of(values[280], values).tolist() == [280]
