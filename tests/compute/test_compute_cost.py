"""Estimated costs: which kernel they favour where there is no doubt, how they grow, and what they say in words."""

from __future__ import annotations

import math

import pytest

from onn_runner import ops
from onn_runner.compute import cost
from onn_runner.compute.base import Block, Call


def request(neurons: int = 32, *, nodal: ops.Nodal | None = None, pool: str = "sum", **keys: object) -> Call:
    block = Block("sine", nodal or ops.Sine(), 0, neurons)
    settings: dict[str, object] = {"stride": (1, 1), "dilation": (1, 1), **keys}
    return Call((block,), ops.named(pool), **settings)  # type: ignore[arg-type]


def both(call: Call, x: tuple[int, ...], w: tuple[int, ...], members: int, device: str = "cpu") -> tuple[float, float]:
    terms = [(members, w[0])]
    found = [cost.estimate(kernel, call, x, w, terms, device) for kernel in ("chebyshev", "tapwise")]
    return found[0], found[1]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_layer_of_usual_size_is_a_convolution(device: str) -> None:
    chebyshev, tapwise = both(request(), (4, 16, 62, 62), (32, 16, 3, 3), 5, device)
    assert chebyshev < cost.CLEARLY * tapwise


def test_a_tiny_layer_is_cheaper_tap_by_tap() -> None:
    chebyshev, tapwise = both(request(1), (1, 1, 8, 8), (1, 1, 1, 1), 16)
    assert tapwise < cost.CLEARLY * chebyshev


def test_hundreds_of_terms_for_one_neuron_are_dearer_than_its_few_values() -> None:
    chebyshev, tapwise = both(request(1), (2, 16, 62, 62), (1, 16, 3, 3), 64)
    assert tapwise < cost.CLEARLY * chebyshev


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("kernel", ["chebyshev", "tapwise"])
def test_twice_the_samples_cost_more_and_at_most_twice(kernel: str, device: str) -> None:
    call, w = request(), (32, 16, 3, 3)
    one, two = (cost.estimate(kernel, call, (b, 16, 20, 31), w, [(5, 32)], device) for b in (4, 8))
    assert one < two <= 2 * one


def test_terms_cost() -> None:
    found = [both(request(), (4, 16, 20, 20), (32, 16, 3, 3), members)[0] for members in (1, 4, 16, 64)]
    assert found == sorted(found)
    assert found[-1] > 8 * found[0]


def test_two_convolutions_cost_more_than_one() -> None:
    call, shapes = request(), ((4, 16, 20, 20), (32, 16, 3, 3))
    one, two = (cost.estimate("chebyshev", call, *shapes, terms, "cpu") for terms in ([(8, 32)], [(4, 32), (4, 32)]))
    assert one < two


def test_only_windows_that_fit_count() -> None:
    whole = cost.amounts("tapwise", request(stride=(1, 1)), (2, 4, 9, 7), (32, 4, 3, 3), None)
    strided = cost.amounts("tapwise", request(stride=(2, 3), dilation=(2, 1)), (2, 4, 9, 7), (32, 4, 3, 3), None)
    assert whole["smooth"] == 2 * 4 * 32 * 9 * 7 * 5
    assert strided["smooth"] == 2 * 4 * 32 * 9 * 3 * 2


def test_a_transposed_layer_meets_each_input_with_each_tap() -> None:
    found = cost.amounts("tapwise", request(transposed=True, stride=(2, 2)), (2, 4, 9, 7), (32, 4, 3, 3), None)
    assert found["smooth"] == 2 * 4 * 32 * 9 * 9 * 7


def test_groups_divide_the_values_and_an_empty_batch_has_none() -> None:
    found = cost.amounts("tapwise", request(groups=4), (2, 16, 9, 7), (32, 4, 3, 3), None)
    assert found["smooth"] == 2 * 4 * 32 * 9 * 7 * 5
    empty = cost.amounts("chebyshev", request(), (0, 16, 9, 7), (32, 16, 3, 3), [(5, 32)])
    assert empty["mac"] == empty["basis"] == 0


def test_every_amount_has_a_price() -> None:
    call, shapes = request(pool="median"), ((2, 4, 9, 7), (32, 4, 3, 3))
    for device, kernels in cost.PRICES.items():
        for kernel, prices in kernels.items():
            assert cost.amounts(kernel, call, *shapes, [(5, 32)]).keys() <= prices.keys()
            assert 0 < cost.estimate(kernel, call, *shapes, [(5, 32)], device) < math.inf


def test_median_costs_more_than_the_sum_and_steep_operators_more_than_products() -> None:
    shapes = ((2, 4, 30, 30), (32, 4, 3, 3))
    of = {
        name: cost.estimate("tapwise", call, *shapes, None, "cpu")
        for name, call in {
            "sum": request(),
            "median": request(pool="median"),
            "product": request(nodal=ops.Multiply()),
            "exp": request(nodal=ops.Exponential()),
        }.items()
    }
    assert of["product"] < of["sum"] < of["median"]
    assert of["sum"] < of["exp"]


def test_a_kernel_that_does_not_run_there_is_never_the_cheapest() -> None:
    assert cost.estimate("fused", request(), (2, 4, 9, 7), (32, 4, 3, 3), None, "cpu") == math.inf


def test_reasons_in_words() -> None:
    assert cost.describe("chebyshev", {"chebyshev": 12.3e6, "tapwise": 410e6}) == "est. 12 ms against 410 ms tapwise"
    assert cost.describe("tapwise", {"chebyshev": 7e5, "tapwise": 2.1e5}) == "est. 0.21 ms against 0.70 ms chebyshev"
    assert cost.describe("tapwise", {"tapwise": 2.4e10, "fused": math.inf}) == "est. 24 s"
