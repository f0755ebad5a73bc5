"""Gain, mean and non-linearity index against fresh layers that are really drawn, and against values known by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from onn_runner.errors import ConfigError
from onn_runner.ops import (
    Chirp,
    Cubic,
    DoG,
    Exponential,
    FunctionNodal,
    Gaussian,
    Log,
    Multiply,
    Nodal,
    Pool,
    Quadratic,
    Sinc,
    Sine,
    Sinh,
    as_nodal,
    calibrate,
    gop,
    named,
    neuron_means,
)
from onn_runner.seeding import generator

CATALOGUE: dict[str, Nodal] = {
    "mul": Multiply(),
    "cubic": Cubic(k=100.0),
    "quadratic": Quadratic(),
    "sine": Sine(k=100.0),
    "exp": Exponential(),
    "sinh": Sinh(k=0.1),
    "sinc": Sinc(k=1000.0, a=0.01),
    "chirp": Chirp(k=10000.0),
    "gaussian": Gaussian(k=2.0),
    "dog": DoG(),
    "log": Log(),
    "gop exp": gop.Exponential(),
    "gop quadratic": gop.Quadratic(),
    "gop gaussian": gop.Gaussian(),
    "gop dog": gop.DoG(),
}
POOLS = ("sum", "mean", "median", "maximum", "minimum", "correlation2", "correlation3")
SHAPES = ((16, 1), (1, 5), (3, 9), (16, 9), (3, 25))  # C and taps: k = 1; k = 5 in 1-D; k = 3 and 5 in 2-D
EVALUATIONS = 800_000


def uniform(*shape: int, key: str) -> Tensor:
    return torch.rand(*shape, generator=generator("calibrate test", key), dtype=torch.float64) * 2 - 1


def fresh_layer(nodal: Nodal, pool: Pool, channels: int, taps: int, inputs: int) -> tuple[Tensor, Tensor]:
    """Outputs [O, inputs] without gain, and weights [O, C, T]; the second half of the neurons has the weights -w."""
    neurons = max(EVALUATIONS // (2 * channels * taps * inputs), 30)
    half = nodal.weight_bound * uniform(neurons, channels, taps, key="w")
    weight = torch.cat([half, -half])
    x = uniform(len(weight), inputs, channels, taps, key="x")
    return pool(nodal(weight[:, None], x), -1).sum(-1), weight


@pytest.mark.parametrize("pool_name", POOLS)
@pytest.mark.parametrize("name", CATALOGUE)
def test_fresh_layers_have_unit_variance_and_no_mean(name: str, pool_name: str) -> None:
    nodal, pool = CATALOGUE[name], named(pool_name)
    for channels, taps in SHAPES:
        if pool_name.startswith("correlation") and taps < 3:
            continue
        calibration = calibrate(nodal, pool, taps=taps, channels=channels)
        pooled, _ = fresh_layer(nodal, pool, channels, taps, inputs=8)
        y = calibration.gain * pooled - calibration.mean
        # the requirement is a tenth; this sample of neurons has standard errors of its own, large for products of three
        # heavy-tailed taps only
        neurons = len(y) // 2
        variances = y.var(1).reshape(2, neurons).mean(0)
        error = variances.std().item() / math.sqrt(neurons)
        assert variances.mean().item() == pytest.approx(1.0, abs=0.1 + 2 * error), (channels, taps)
        error = y.mean(1).reshape(2, neurons).mean(0).std().item() / math.sqrt(neurons)
        assert abs(y.mean().item()) < 0.1 + 2 * error, (channels, taps)


@pytest.mark.parametrize("pool_name", POOLS)
@pytest.mark.parametrize("name", [name for name in CATALOGUE if name != "mul" and not name.startswith("gop")])
def test_all_but_mul_are_visibly_nonlinear(name: str, pool_name: str) -> None:
    for taps in (3, 9, 25):
        assert calibrate(CATALOGUE[name], named(pool_name), taps=taps, channels=3).nonlinearity > 0.05


@pytest.mark.parametrize("pool_name", ["sum", "mean"])
def test_mul_is_linear(pool_name: str) -> None:
    for taps in (1, 9, 49):
        assert calibrate(Multiply(), named(pool_name), taps=taps, channels=3).nonlinearity < 1e-6


@pytest.mark.parametrize("pool_name", POOLS)
@pytest.mark.parametrize("name", CATALOGUE)
def test_the_index_is_what_least_squares_leaves(name: str, pool_name: str) -> None:
    nodal, pool, taps, neurons, inputs = CATALOGUE[name], named(pool_name), 5, 300, 1000
    weight = nodal.weight_bound * uniform(neurons, 1, taps, key="least squares w")
    x = uniform(inputs, taps, key="least squares x")
    y = pool(nodal(weight, x), -1).T  # [inputs, O]
    design = torch.cat([x, torch.ones(inputs, 1, dtype=x.dtype)], dim=1)
    residual = y - design @ torch.linalg.lstsq(design, y).solution
    left = (residual.square().sum() / (y - y.mean(0)).square().sum()).item()
    # 300 neurons: the ratio of the two sums has a standard error of about 0.015, twice that where tails are heavy
    tolerance = 0.12 if name.startswith("gop") else 0.04
    assert calibrate(nodal, pool, taps=taps, channels=1).nonlinearity == pytest.approx(left, abs=tolerance)


@pytest.mark.parametrize("shape", [(5,), (3, 3), (2, 3)])
def test_holds_for_windows_of_an_image(shape: tuple[int, ...]) -> None:
    nodal, channels, taps = Exponential(), 3, math.prod(shape)
    calibration = calibrate(nodal, named("sum"), taps=taps, channels=channels)
    weight = nodal.weight_bound * uniform(200, channels, *shape, key="image w")
    image = uniform(4, channels, *([24] * len(shape)), key="image")
    kernel = (1, *shape)[-2:]
    patches = functional.unfold(image.reshape(4, channels, -1, 24), kernel)  # [B, C T, L]
    y = calibration.gain * nodal(weight.flatten(1)[:, :, None], patches[:, None]).sum(2) - calibration.mean
    assert y.var(2).mean().item() == pytest.approx(1.0, abs=0.1)
    assert abs(y.mean().item()) < 0.1


def test_values_by_hand() -> None:
    for channels, taps in ((1, 1), (3, 9), (64, 49)):
        # Var(w x) = 1/9, Var(w x^2) = E w^2 (1/5 - 1/9), E (exp(w x) - 1) = mean of sinh(w)/w - 1
        plain = calibrate(Multiply(), named("sum"), taps=taps, channels=channels)
        assert plain.gain == pytest.approx(3 / math.sqrt(channels * taps), rel=1e-12)
        assert plain.mean == pytest.approx(0.0, abs=1e-12)
        assert calibrate(Multiply(), named("mean"), taps=taps, channels=channels).gain == pytest.approx(
            taps * plain.gain
        )
        square = calibrate(Quadratic(), named("sum"), taps=taps, channels=channels)
        assert square.gain == pytest.approx(1 / math.sqrt(channels * taps * 4 / 135), rel=1e-12)
        assert square.nonlinearity == pytest.approx(1.0, abs=1e-12)
        exp = calibrate(Exponential(omega=1.0), named("sum"), taps=taps, channels=channels)
        series = math.fsum(1 / (math.factorial(2 * n + 1) * (2 * n + 1)) for n in range(1, 12))
        assert exp.mean == pytest.approx(exp.gain * channels * taps * series, rel=1e-10)
    assert calibrate(Cubic(), named("sum"), taps=9, channels=1).nonlinearity == pytest.approx(0.16, abs=1e-12)


def test_products_by_hand() -> None:
    # T - 1 uncorrelated products of variance 1/9^2, T - 2 of 1/9^3
    for taps in (3, 9, 25):
        two = calibrate(Multiply(), named("correlation2"), taps=taps, channels=2)
        assert two.gain == pytest.approx(9 / math.sqrt(2 * (taps - 1)), rel=1e-10)
        three = calibrate(Multiply(), named("correlation3"), taps=taps, channels=2)
        assert three.gain == pytest.approx(27 / math.sqrt(2 * (taps - 2)), rel=1e-10)
        assert two.mean == pytest.approx(0.0, abs=1e-10)


def test_order_statistics_by_hand() -> None:
    # psi = x: the largest of T uniforms has mean (T - 1)/(T + 1) and variance 4 T / ((T + 1)^2 (T + 2))
    plain = as_nodal(lambda w, x: x + 0 * w)
    for taps in (1, 2, 9, 49, 1331):
        mean, variance = (taps - 1) / (taps + 1), 4 * taps / ((taps + 1) ** 2 * (taps + 2))
        for name, sign in (("maximum", 1), ("minimum", -1)):
            calibration = calibrate(plain, named(name), taps=taps, channels=1)
            # 128 nodes in x stand for the uniform distribution: the largest of 1331 lies between the last two
            assert calibration.mean / calibration.gain == pytest.approx(sign * mean, abs=0.01)
            if taps < 100:
                assert calibration.gain == pytest.approx(1 / math.sqrt(variance), rel=0.05)


@pytest.mark.parametrize("pool_name", POOLS)
def test_scale_by_taps_is_undone_by_the_gain(pool_name: str) -> None:
    plain = calibrate(Exponential(), named(pool_name), taps=9, channels=3)
    scaled = calibrate(Exponential(), named(pool_name, scale_by_taps=True), taps=9, channels=3)
    assert scaled.gain * 9 == pytest.approx(plain.gain, rel=1e-9)
    assert scaled.mean == pytest.approx(plain.mean, rel=1e-9)
    assert scaled.nonlinearity == pytest.approx(plain.nonlinearity, rel=1e-9)


def test_the_factor_k_changes_nothing_once_the_weights_are_scaled() -> None:
    for one, other in ((Sine(), Sine(k=100.0)), (Chirp(), Chirp(k=1e4)), (Sinh(), Sinh(k=0.1))):
        for pool_name in ("sum", "maximum"):
            first = calibrate(one, named(pool_name), taps=9, channels=3)
            second = calibrate(other, named(pool_name), taps=9, channels=3)
            assert second.gain == pytest.approx(first.gain, rel=1e-9)
            assert second.nonlinearity == pytest.approx(first.nonlinearity, rel=1e-6)


def test_other_starting_weights() -> None:
    narrow = calibrate(Sine(), named("sum"), taps=9, channels=1, weight_bound=1.57)
    assert narrow == calibrate(Sine(omega=1.57), named("sum"), taps=9, channels=1)
    # the reason for the default range: with 1.57 a sine layer is a convolution but for half a percent
    assert narrow.nonlinearity == pytest.approx(0.0054, abs=1e-4)
    fast = calibrate(Chirp(k=10000.0), named("sum"), taps=9, channels=1, weight_bound=1 / 9)
    assert fast.nonlinearity > 0.9


@pytest.mark.parametrize("pool_name", POOLS)
@pytest.mark.parametrize("name", ["mul", "quadratic", "exp", "gaussian", "sinc", "gop gaussian"])
def test_neuron_means_centre_every_neuron(name: str, pool_name: str) -> None:
    nodal, pool, channels, taps, inputs = CATALOGUE[name], named(pool_name), 3, 9, 2000
    weight = nodal.weight_bound * uniform(12, channels, 3, 3, key="means w")
    x = uniform(inputs, channels, taps, key="means x")
    pooled = torch.stack([pool(nodal(neuron, x), -1).sum(-1) for neuron in weight.flatten(2)])
    means = neuron_means(nodal, pool, weight.float())
    assert means.shape == (12,)
    assert means.dtype == torch.float64
    error = (pooled.mean(1) - means) / pooled.std(1)
    # standard errors of the two samples: 1/sqrt(2000) = 0.022 and, for order statistics, 1/sqrt(256) = 0.063
    assert error.abs().max().item() < 0.25
    assert error.square().mean().sqrt().item() < 0.09


def test_neuron_means_average_to_the_mean() -> None:
    for nodal in (Exponential(), Sinc()):
        weight = nodal.weight_bound * uniform(4000, 2, 3, key="average")
        calibration = calibrate(nodal, named("sum"), taps=3, channels=2)
        means = neuron_means(nodal, named("sum"), weight)
        assert calibration.gain * means.mean().item() == pytest.approx(calibration.mean, abs=0.05)


def test_an_operator_of_ones_own_is_calibrated_without_a_word() -> None:
    nodal = as_nodal(lambda w, x: w * (x.abs() - 0.3))
    for pool_name in ("sum", "median"):
        calibration = calibrate(nodal, named(pool_name), taps=9, channels=4)
        pooled, _ = fresh_layer(nodal, named(pool_name), 4, 9, inputs=8)
        y = calibration.gain * pooled - calibration.mean
        assert y.var(1).mean().item() == pytest.approx(1.0, abs=0.1)


@dataclass(frozen=True, kw_only=True)
class Largest(Pool):
    """A user's pool."""

    name = "largest"

    def __call__(self, values: Tensor, dim: int) -> Tensor:
        return values.amax(dim)


def test_a_pool_of_ones_own_is_sampled() -> None:
    own = calibrate(Sine(), Largest(), taps=9, channels=4)
    known = calibrate(Sine(), named("maximum"), taps=9, channels=4)
    assert own.gain == pytest.approx(known.gain, rel=0.05)
    assert own.mean == pytest.approx(known.mean, rel=0.05)
    assert own.nonlinearity == pytest.approx(known.nonlinearity, abs=0.03)
    weight = 3 * uniform(8, 2, 3, key="own pool")
    first, second = (neuron_means(Sine(), pool, weight) for pool in (Largest(), named("maximum")))
    torch.testing.assert_close(first, second, atol=0.2, rtol=0.0)


def test_is_a_function_of_its_arguments_and_leaves_torchs_generator_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = calibrate(Sine(omega=2.01), named("median"), taps=9, channels=4)
    assert torch.equal(before, torch.get_rng_state())
    assert calibrate(Sine(omega=2.01), named("median"), taps=9, channels=4) is not first
    assert calibrate(Sine(omega=2.01), named("median"), taps=9, channels=4) == first
    other = calibrate(Sine(omega=2.01), named("median"), taps=9, channels=4, seed=1)
    assert other != first
    assert other.gain == pytest.approx(first.gain, rel=0.05)


def test_asks_psi_once_for_equal_arguments() -> None:
    calls = []

    def psi(w: Tensor, x: Tensor) -> Tensor:
        calls.append(1)
        return w * x

    for channels in (1, 2, 3):
        calibrate(FunctionNodal(function=psi), named("sum"), taps=9, channels=channels)
    assert len(calls) == 1


class Hidden(Nodal):
    """State beside the fields: equal to its siblings and yet different."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        object.__setattr__(self, "gain", gain)

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return self.gain * w * x  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class Unhashable(Nodal):
    powers: list[int] = field(default_factory=lambda: [1, 3])

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        return sum((w * x**power for power in self.powers), start=torch.zeros(()))


def test_operators_that_cannot_be_remembered_are_still_right() -> None:
    gains = [calibrate(Hidden(gain), named("sum"), taps=1, channels=1).gain for gain in (1.0, 2.0)]
    assert gains == pytest.approx([3.0, 1.5])
    assert calibrate(Unhashable(), named("sum"), taps=1, channels=1).gain > 0


REFUSED: dict[str, tuple[Any, str]] = {
    "overflow": (
        Sinh(omega=900.0),
        r"Sinh\(omega=900.0, k=1.0\) is not finite, or above 1e\+30, for \|w\| <= 900 and .*lower its omega",
    ),
    "nan": (
        as_nodal(lambda w, x: (w * x).sqrt()),
        r"<lambda> is not finite, .* for \|w\| <= 1 and .*correct its formula",
    ),
    "beyond float32": (
        as_nodal(lambda w, x: 1e200 * w * x),
        r"<lambda> is not finite, or above 1e\+30, for .*lower its",
    ),
    "constant": (as_nodal(lambda w, x: w + 0 * x), r"<lambda> does not change with x for .*raise its omega"),
    "zero": (as_nodal(lambda w, x: 0 * w * x), r"<lambda> does not change with x"),
    "too narrow": (Gaussian(omega=1e-4), r"Gaussian\(omega=0.0001, k=1.0\) does not change with x"),
    "ignores w": (as_nodal(lambda w, x: x), r"<lambda> must give one number for each pair .*not shape \[1, 128\]"),
    "reduces": (as_nodal(lambda w, x: (w * x).sum()), r"<lambda> must give one number for each pair .*not shape \[\]"),
    "no tensor": (as_nodal(lambda w, x: 3.0), r"<lambda> must give one number for each pair .*not float"),
    "no range": (FunctionNodal(function=torch.mul, omega=0.0), r"mul starts with weights in \+-0; .*omega above 0"),
    "wild range": (FunctionNodal(function=torch.mul, omega=math.nan), r"mul starts with weights in \+-nan"),
}


@pytest.mark.parametrize("pool_name", ["sum", "maximum", "correlation2"])
@pytest.mark.parametrize("case", REFUSED)
def test_refuses_operators_that_cannot_be_calibrated(case: str, pool_name: str) -> None:
    nodal, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        calibrate(nodal, named(pool_name), taps=9, channels=3)


def test_refuses_sizes() -> None:
    with pytest.raises(ConfigError, match="taps must be at least 1, not 0"):
        calibrate(Sine(), named("sum"), taps=0, channels=1)
    with pytest.raises(ConfigError, match="channels must be at least 1, not -2"):
        calibrate(Sine(), named("sum"), taps=9, channels=-2)
    with pytest.raises(ConfigError, match="correlation3 multiplies 3 neighbouring taps and the kernel has 1"):
        calibrate(Sine(), named("correlation3"), taps=1, channels=1)
