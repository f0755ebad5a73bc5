"""CGD and AdamFast against torch's SGD and Adam with gradients limited by hand; saved and restored."""

import copy
import functools
from typing import Any

import pytest
import torch

from onn_runner.errors import ConfigError
from onn_runner.trainer.kernelwise import CGD, AdamFast

SHAPES = [(3, 2, 5, 3), (2, 3, 7), (2, 1, 2, 3, 2), (4,), (3, 2)]
PAIRS = [(CGD, functools.partial(torch.optim.SGD, momentum=0.0)), (AdamFast, torch.optim.Adam)]


def weights(seed: int = 0) -> list[torch.nn.Parameter]:
    drawn = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=drawn)) for shape in SHAPES]


def gradients(step: int) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(100 + step)
    return [10 * torch.randn(shape, generator=drawn) for shape in SHAPES]


def limited(gradient: torch.Tensor, largest: float) -> torch.Tensor:
    """Kernel by kernel, in a loop."""
    found = gradient.clone()
    if gradient.dim() > 2:
        for o in range(gradient.shape[0]):
            for c in range(gradient.shape[1]):
                size = float(gradient[o, c].abs().max())
                if size > largest:
                    found[o, c] *= largest / size
    return found


def groups(parameters: list[torch.nn.Parameter]) -> list[dict[str, Any]]:
    return [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.002}]


@pytest.mark.parametrize(("ours", "torchs"), PAIRS)
@pytest.mark.parametrize("largest", [10.0, 0.5])
def test_steps_are_those_of_torch_with_limited_gradients(ours: Any, torchs: Any, largest: float) -> None:
    mine, theirs = weights(), weights()
    optimizer, oracle = ours(groups(mine), lr=0.01, max_gradient=largest), torchs(groups(theirs), lr=0.01)
    for step in range(4):
        for a, b, gradient in zip(mine, theirs, gradients(step), strict=True):
            a.grad, b.grad = gradient.clone(), limited(gradient, largest)
        optimizer.step()
        oracle.step()
    for a, b in zip(mine, theirs, strict=True):
        # Float32 rounding of one division a step.
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_within_the_limit_are_left_as_they_are_to_the_bit() -> None:
    mine = weights()
    for parameter, gradient in zip(mine, gradients(0), strict=True):
        parameter.grad = gradient
    CGD(mine, lr=0.01, max_gradient=1000.0).step()
    for parameter, gradient in zip(mine, gradients(0), strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, gradient)


@pytest.mark.parametrize("build", [CGD, AdamFast])
def test_restored_optimizer_goes_on_with_the_same_bits(build: Any) -> None:
    def run(optimizer: Any, parameters: list[torch.nn.Parameter], steps: range) -> None:
        for step in steps:
            for parameter, gradient in zip(parameters, gradients(step), strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()

    through = weights()
    run(build(groups(through)), through, range(6))
    first = weights()
    half = build(groups(first))
    run(half, first, range(3))
    second = [torch.nn.Parameter(parameter.detach().clone()) for parameter in first]
    resumed = build(groups(second))
    resumed.load_state_dict(copy.deepcopy(half.state_dict()))
    run(resumed, second, range(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(through, second, strict=True))


@pytest.mark.parametrize("build", [CGD, AdamFast])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "large", None])
def test_wrong_limits_are_refused(build: Any, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.max_gradient \(="):
        build(weights(), max_gradient=value)
