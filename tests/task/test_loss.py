"""Losses against their formulas, value and gradient."""

import pytest
import torch

from onn_runner.errors import ConfigError
from onn_runner.task.loss import LOSSES, named

FORMULAS = {
    "mse": lambda d: d**2,
    "l1": lambda d: d.abs(),
    "charbonnier": lambda d: (d**2 + 1e-6) ** 0.5,
    "huber": lambda d: torch.where(d.abs() <= 0.1, d**2 / 2, 0.1 * (d.abs() - 0.05)),
}


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    prediction, target = torch.rand(2, 3, 1, 5, 7, dtype=torch.float64, generator=generator)
    return prediction.requires_grad_(), target


def test_every_loss_has_a_formula() -> None:
    assert set(FORMULAS) == set(LOSSES)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_value_and_gradient(name: str) -> None:
    prediction, target = pair()
    loss, expected = named(name)(prediction, target), FORMULAS[name](prediction - target).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-14)
    (gradient,) = torch.autograd.grad(loss, prediction)
    (reference,) = torch.autograd.grad(expected, prediction)
    torch.testing.assert_close(gradient, reference, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["mse", "charbonnier", "huber"])
def test_gradcheck(name: str) -> None:
    prediction, target = pair()
    assert torch.autograd.gradcheck(lambda p: named(name)(p, target), (prediction,))


def test_parameters_can_be_given() -> None:
    prediction, target = pair()
    assert named("huber", delta=10.0)(prediction, target).item() == pytest.approx(
        ((prediction - target) ** 2 / 2).mean().item(), rel=1e-14
    )


def test_charbonnier_of_nothing_is_its_width_and_has_a_gradient_of_zero() -> None:
    same = torch.ones(1, 1, 2, 2, requires_grad=True)
    loss = named("charbonnier")(same, same.detach())
    loss.backward()
    assert loss.item() == pytest.approx(1e-3)
    assert same.grad is not None
    assert (same.grad == 0).all()


def test_misspelt_loss_lists_the_options() -> None:
    with pytest.raises(ConfigError, match=r"task\.loss 'hubert'\. Did you mean huber\?.*charbonnier, huber, l1, mse"):
        named("hubert")
