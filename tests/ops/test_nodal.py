"""Every operator of the catalogue against 50-digit arithmetic: values, derivatives, extremes, rejected parameters."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import pytest
import torch

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
    Quadratic,
    Sinc,
    Sine,
    Sinh,
    as_nodal,
)

mpmath.mp.dps = 50


def exact_sinc(w: Any, x: Any, k: float, a: float) -> Any:
    z = w * x
    return a * mpmath.mpf(k) if z == 0 else a * mpmath.sin(k * z) / z


def exact_log(w: Any, x: Any) -> Any:
    argument = mpmath.cosh(1) + mpmath.sinh(1) * x
    return w * mpmath.log(max(argument, mpmath.mpf("1e-3")))


def table(k: float) -> dict[str, tuple[Nodal, Any]]:
    """Operator and formula of neurons' table by name, written apart from the package."""
    return {
        "mul": (Multiply(), lambda w, x: w * x),
        "cubic": (Cubic(k=k), lambda w, x: k * w * x**3),
        "quadratic": (Quadratic(k=k), lambda w, x: k * w * x**2),
        "sine": (Sine(k=k), lambda w, x: mpmath.sin(k * w * x)),
        "exp": (Exponential(), lambda w, x: mpmath.expm1(w * x)),
        "sinh": (Sinh(k=k), lambda w, x: mpmath.sinh(k * w * x)),
        "sinc": (Sinc(k=k, a=0.7), lambda w, x: exact_sinc(w, x, k, 0.7)),
        "chirp": (Chirp(k=k), lambda w, x: mpmath.sin(k * w * x**2)),
        "gaussian": (Gaussian(k=k), lambda w, x: w * mpmath.exp(-k * w**2 * x**2)),
        "dog": (DoG(k=k), lambda w, x: w * x * mpmath.exp(-k * w**2 * x**2)),
        "log": (Log(), exact_log),
    }


NAMES = list(table(1.0))
GRID = (-2.7, -1.0, -0.31, -1e-3, -1e-9, 0.0, 1e-12, 1e-5, 0.02, 0.4999, 0.77, 1.0, 1.9)
PAIRS = list(itertools.product(GRID, GRID))


def derivatives(nodal: Nodal, w: float, x: float, dtype: torch.dtype) -> tuple[float, float, float]:
    a = torch.tensor(w, dtype=dtype, requires_grad=True)
    b = torch.tensor(x, dtype=dtype, requires_grad=True)
    value = nodal(a, b)
    slopes = torch.autograd.grad(value, (a, b), allow_unused=True, materialize_grads=True)
    return value.item(), slopes[0].item(), slopes[1].item()


def exact_derivatives(formula: Any, w: float, x: float) -> tuple[float, float, float]:
    a, b = mpmath.mpf(w), mpmath.mpf(x)
    # central differences in 50 digits: truncation (1e-12)^2, rounding 1e-50 / 1e-12
    step = mpmath.mpf("1e-12")
    by_w = (formula(a + step, b) - formula(a - step, b)) / (2 * step)
    by_x = (formula(a, b + step) - formula(a, b - step)) / (2 * step)
    return float(formula(a, b)), float(by_w), float(by_x)


@pytest.mark.parametrize("k", [1.0, 0.1, 9.0])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_derivatives_equal_the_formula(name: str, k: float) -> None:
    nodal, formula = table(k)[name]
    for w, x in PAIRS:
        got = derivatives(nodal, w, x, torch.float64)
        wanted = exact_derivatives(formula, w, x)
        # a few roundings of 1e-16, times the condition number of sin and exp at arguments up to 9 * 2.7 * 7.3 = 180
        assert got == pytest.approx(wanted, rel=1e-12, abs=1e-13 * max(1.0, k)), (w, x)


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_stays_near_the_formula(name: str) -> None:
    nodal, formula = table(1.0)[name]
    for w, x in PAIRS:
        got = derivatives(nodal, w, x, torch.float32)
        wanted = exact_derivatives(formula, float(torch.tensor(w)), float(torch.tensor(x)))
        # float32 rounds at 6e-8; log at x near -a/b has the condition number 1 / (a + b x), below 1e3 there
        assert got == pytest.approx(wanted, rel=5e-6, abs=3e-6), (w, x)


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name: str) -> None:
    nodal, _ = table(2.0)[name]
    w = torch.tensor([[-1.3], [0.4], [0.0], [1.1]], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([[-0.9, -0.2, 0.0, 0.3, 0.8]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(nodal, (w, x))
    assert torch.autograd.gradgradcheck(nodal, (w, x))


@pytest.mark.parametrize("name", NAMES)
def test_broadcasts_and_keeps_the_dtype(name: str) -> None:
    nodal, _ = table(1.0)[name]
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        value = nodal(torch.ones(3, 1, dtype=dtype), torch.linspace(-1, 1, 5, dtype=dtype))
        assert value.shape == (3, 5)
        assert value.dtype == dtype
        assert value.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_parity_hints_are_true(name: str) -> None:
    nodal, _ = table(1.3)[name]
    w = torch.linspace(-3, 3, 41, dtype=torch.float64)[:, None]
    x = torch.linspace(0, 4, 37, dtype=torch.float64)
    signs = {"odd": -1.0, "even": 1.0}
    # negation is exact in floating point, so equality holds to the last bit
    parities = {parity for parity, sign in signs.items() if torch.equal(nodal(w, -x), sign * nodal(w, x))}
    assert parities == ({nodal.parity} if nodal.parity else set())


def slope_of_sinc(w: Any, x: Any) -> Any:
    z = w * x
    # the next term of the series is z^2 / 10 of the first
    return -z / 3 if abs(z) < 1e-12 else (z * mpmath.cos(z) - mpmath.sin(z)) / z**2


def bell(w: Any, x: Any) -> tuple[Any, Any]:
    square = (w * x) ** 2
    return mpmath.exp(-square), square


# value, d/dw and d/dx by hand, with K = 1
CLOSED: dict[str, tuple[Nodal, Any]] = {
    "mul": (Multiply(), lambda w, x: (w * x, x, w)),
    "cubic": (Cubic(), lambda w, x: (w * x**3, x**3, 3 * w * x**2)),
    "quadratic": (Quadratic(), lambda w, x: (w * x**2, x**2, 2 * w * x)),
    "exp": (Exponential(), lambda w, x: (mpmath.expm1(w * x), x * mpmath.exp(w * x), w * mpmath.exp(w * x))),
    "sinh": (Sinh(), lambda w, x: (mpmath.sinh(w * x), x * mpmath.cosh(w * x), w * mpmath.cosh(w * x))),
    "sinc": (Sinc(), lambda w, x: (exact_sinc(w, x, 1.0, 1.0), x * slope_of_sinc(w, x), w * slope_of_sinc(w, x))),
    "gaussian": (
        Gaussian(),
        lambda w, x: (w * bell(w, x)[0], bell(w, x)[0] * (1 - 2 * bell(w, x)[1]), -2 * w**3 * x * bell(w, x)[0]),
    ),
    "dog": (
        DoG(),
        lambda w, x: (
            w * x * bell(w, x)[0],
            x * bell(w, x)[0] * (1 - 2 * bell(w, x)[1]),
            w * bell(w, x)[0] * (1 - 2 * bell(w, x)[1]),
        ),
    ),
    "log": (
        Log(),
        lambda w, x: (
            exact_log(w, x),
            exact_log(1, x),
            w / (x + mpmath.coth(1)) if mpmath.cosh(1) + mpmath.sinh(1) * x > 1e-3 else mpmath.mpf(0),
        ),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CLOSED)
def test_tiny_and_huge_inputs(name: str, dtype: torch.dtype) -> None:
    nodal, closed = CLOSED[name]
    limits = torch.finfo(dtype)
    # not the smallest normal number, since w exp(-u^2) would be subnormal and lose its digits
    sizes = (0.0, 1e10 * limits.tiny, 1e-20, 1.0, 3.0, 40.0, 1e20, 0.9 * limits.max)
    for w, x in itertools.product(*[[sign * size for size in sizes for sign in (1, -1)]] * 2):
        exact_w, exact_x = (mpmath.mpf(torch.tensor(value, dtype=dtype).item()) for value in (w, x))
        exact = closed(exact_w, exact_x)
        product = abs(exact_w * exact_x)
        # an argument of exp or sinh carries the rounding eps * argument, which is the relative error of the value
        tolerance = 20 * limits.eps * float(1 + min(product, 750))
        sizes_of = (product, abs(exact_w), abs(exact_x))
        for got, wanted, size in zip(derivatives(nodal, w, x, dtype), exact, sizes_of, strict=True):
            if abs(wanted) > 0.01 * limits.max or (name == "cubic" and not limits.tiny < exact_x**2 < limits.max):
                # autograd forms x^2 before it multiplies by w: infinity times zero, or digits lost, in d/dx
                continue
            if name == "exp" and product > 1:
                # the derivative is taken as expm1 + 1, exact to eps of 1 where exp itself is smaller
                assert got == pytest.approx(float(wanted), rel=tolerance, abs=limits.eps * max(abs(w), abs(x)))
            elif name == "sinc" and product > 1e3:
                # the phase is lost in w x itself, the envelope is not
                assert abs(got) <= float(1.01 / size) + limits.tiny, (w, x)
            else:
                assert got == pytest.approx(float(wanted), rel=tolerance, abs=4 * limits.tiny), (w, x)


@pytest.mark.parametrize("name", ["gaussian", "dog", "sinc"])
def test_bells_vanish_far_out_and_nothing_survives_of_their_slopes(name: str) -> None:
    nodal, _ = table(1.0)[name]
    value, by_w, by_x = derivatives(nodal, 1e30, 1e30, torch.float32)
    # sinc: a sin(k z)/z is at most 1e-38 there
    assert (value, by_w, by_x) == pytest.approx((0.0, 0.0, 0.0), abs=1e-30)


def test_polynomials_with_zero_weight_are_zero_where_the_power_overflows() -> None:
    for nodal in (Cubic(), Quadratic(), Chirp()):
        assert derivatives(nodal, 0.0, 1e30, torch.float32)[0] == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_nan_goes_through(name: str) -> None:
    nodal, _ = table(1.0)[name]
    nan, one = torch.tensor(math.nan), torch.tensor(1.0)
    assert nodal(nan, one).isnan()
    assert nodal(one, nan).isnan()


@pytest.mark.parametrize("name", ["mul", "cubic", "quadratic", "sine", "exp", "sinh", "chirp", "log"])
def test_infinity_is_not_turned_into_a_number(name: str) -> None:
    nodal, _ = table(1.0)[name]
    assert not nodal(torch.tensor(1.0), torch.tensor(math.inf)).isfinite()


def test_bells_have_their_limit_at_infinity() -> None:
    for nodal in (Gaussian(), DoG(), Sinc()):
        assert nodal(torch.tensor(1.0), torch.tensor(math.inf)).item() == pytest.approx(0.0, abs=1e-30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sinc_is_smooth_through_zero(dtype: torch.dtype) -> None:
    nodal = Sinc(k=1000.0, a=0.01)
    w = torch.tensor(1.0, dtype=dtype)
    assert nodal(w, torch.zeros((), dtype=dtype)).item() == pytest.approx(10.0)
    # u = K w x from far inside the series to beyond its end at 1/2
    for u in (0.0, 1e-30, 1e-12, 1e-6, 1e-3, 0.1, 0.499999, 0.500001, 0.7, 3.0):
        x = torch.tensor(u / 1000.0, dtype=dtype, requires_grad=True)
        (slope,) = torch.autograd.grad(nodal(w, x), x, create_graph=True)
        (curvature,) = torch.autograd.grad(slope, x)
        at = mpmath.mpf(x.item())
        function = lambda t: exact_sinc(mpmath.mpf(1), t, 1000.0, 0.01)  # noqa: E731
        # relative to the largest slope (K) and curvature (K^2), times 10; the second derivative loses 1/u^2 = 4
        unit = 30 * torch.finfo(dtype).eps
        step = mpmath.mpf("1e-15")
        slope_there = (function(at + step) - function(at - step)) / (2 * step)
        bend_there = (function(at + step) - 2 * function(at) + function(at - step)) / step**2
        assert slope.item() == pytest.approx(float(slope_there), abs=unit * 1e4)
        assert curvature.item() == pytest.approx(float(bend_there), abs=unit * 1e7)


def test_log_is_clamped_below_its_pole() -> None:
    pole = -math.cosh(1) / math.sinh(1)
    for x in (pole, pole - 1e-6, -1.5, -1e6, -1e38):
        value, by_w, by_x = derivatives(Log(), 2.0, x, torch.float32)
        assert value == pytest.approx(2 * math.log(1e-3), rel=1e-5)
        assert by_w == pytest.approx(math.log(1e-3), rel=1e-5)
        assert by_x == 0.0
    value, by_w, _ = derivatives(Log(), 0.0, 3.3e38, torch.float32)
    assert value == 0.0
    assert by_w == pytest.approx(math.log(3.3e38 * math.sinh(1)), rel=1e-6)


def test_log_takes_the_papers_constants() -> None:
    w = torch.ones(3, dtype=torch.float64)
    x = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    assert Log()(w, x).tolist() == pytest.approx([-1.0, math.log(math.cosh(1)), 1.0], abs=1e-14)


def test_scale_is_the_factor_on_w_inside() -> None:
    assert Sine(k=100.0).weight_bound == pytest.approx(Sine().omega / 100)
    assert Gaussian(k=4.0).scale == 2.0
    assert DoG(k=9.0).weight_bound == pytest.approx(DoG().omega / 3)
    assert Multiply(omega=0.5).weight_bound == 0.5
    w, x = torch.linspace(-1, 1, 9)[:, None], torch.linspace(-1, 1, 9)
    for one, other in ((Sine(), Sine(k=7.0)), (Sinh(), Sinh(k=7.0)), (Chirp(), Chirp(k=7.0)), (Cubic(), Cubic(k=7.0))):
        torch.testing.assert_close(one(w, x), other(w / other.scale, x))
    for bell, narrow in ((Gaussian(), Gaussian(k=7.0)), (DoG(), DoG(k=7.0))):
        torch.testing.assert_close(bell(w, x), narrow.scale * narrow(w / narrow.scale, x))


@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.inf, -math.inf, math.nan, "3", None, True, [1.0], 1j])
@pytest.mark.parametrize(
    ("kind", "parameter"),
    [(Sine, "k"), (Sine, "omega"), (Multiply, "omega"), (Gaussian, "k"), (Sinc, "a"), (Log, "a"), (Log, "b")],
)
def test_refuses_a_parameter_out_of_range(kind: type[Nodal], parameter: str, value: Any) -> None:
    with pytest.raises(
        ConfigError, match=rf"^{parameter} of the operator {kind.__name__} must be a finite number abov"
    ):
        kind(**{parameter: value})


def test_takes_whole_numbers() -> None:
    assert Sine(k=3) == Sine(k=3.0)
    assert hash(Sine(k=3)) == hash(Sine(k=3.0))


def test_parameters_are_keyword_only_and_fixed() -> None:
    with pytest.raises(TypeError):
        Sine(3.0)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Sine().k = 2.0  # type: ignore[misc]


def test_a_function_becomes_an_operator() -> None:
    nodal = as_nodal(lambda w, x: w * x.abs())
    assert isinstance(nodal, FunctionNodal)
    assert nodal(torch.tensor(2.0), torch.tensor(-3.0)).item() == 6.0
    assert as_nodal(nodal) is nodal
    with pytest.raises(TypeError, match="not Linear"):
        as_nodal(torch.nn.Linear(1, 1))
    with pytest.raises(TypeError, match="not int"):
        as_nodal(3)
