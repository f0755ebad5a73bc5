"""What is no operator is refused in one sentence that names it."""

import functools

import pytest
import torch

from onn_runner.errors import ConfigError
from onn_runner.model.base import LayerSpec
from onn_runner.model.operational import Operational
from onn_runner.ops import FunctionNodal, Sine
from onn_runner.ops.examine import describe, examine


def fails(w, x):
    raise ValueError("boom\nsecond line")


def in_place(w, x):
    return x.mul_(w)


def detached(w, x):
    return torch.sin(w * x).detach()


def whole_numbers(w, x):
    return torch.round(w * x).long()


def rounded(w, x):
    return torch.round(3 * w * x)


def random(w, x):
    return w * x + torch.randn(())


def by_the_mean(w, x):
    return w * x if x.mean() > 0 else w * x * x


def scaled_by_the_largest(w, x):
    return w * x * x.amax()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (fails, r"failed with ValueError: boom \(.*test_examine.py, line"),
        (in_place, "failed with RuntimeError: a leaf Variable"),
        (detached, "has no gradient to w"),
        (whole_numbers, "has no gradient to w"),
        (rounded, "has no gradient to w"),
        (random, "gives other values each time"),
        (by_the_mean, "depends on more than its own w and x"),
        (scaled_by_the_largest, "depends on more than its own w and x"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("initialisation", ["calibrated", "fastonn"])
def test_what_is_no_operator_is_refused(function, said, initialisation):
    spec = LayerSpec(in_channels=1, out_channels=2, kernel_size=(3, 3), stride=(1, 1), dilation=(1, 1))
    with pytest.raises(ConfigError, match=f"the operator {function.__name__} {said}"):
        Operational({"mine": functools.partial(function)}, initialisation=initialisation)(spec)


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: w * torch.sign(x),
        lambda w, x: torch.where(x > 0, w * x, 0.1 * w * x),
        lambda w, x: torch.tanh(1000 * w * x),
        lambda w, x: (w * x).to(torch.float32),
    ],
    ids=["sign", "leaky", "steep", "single"],
)
def test_what_is_unusual_is_not(function):
    examine(FunctionNodal(function=function), 1.0)
    examine(Sine(), 3.0)


def test_the_name_of_a_partial_is_the_functions():
    assert describe(FunctionNodal(function=functools.partial(functools.partial(random), x=1))) == "the operator random"
