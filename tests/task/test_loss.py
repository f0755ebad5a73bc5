"""Losses against their formulas, value and gradient."""

import pytest
import torch

from onn_runner.errors import ConfigError
from onn_runner.metric.image import Ssim
from onn_runner.task.loss import LOSSES, RELATIVE, build, named
from onn_runner.task.restore import Restore

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
    assert {*FORMULAS, *RELATIVE} == set(LOSSES)


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_value_and_gradient(name: str) -> None:
    prediction, target = pair()
    loss, expected = named(name)(prediction, target), FORMULAS[name](prediction - target).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-14)
    (gradient,) = torch.autograd.grad(loss, prediction)
    (reference,) = torch.autograd.grad(expected, prediction)
    torch.testing.assert_close(gradient, reference, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["mse", "charbonnier", "huber", "ssim"])
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
    with pytest.raises(
        ConfigError, match=r"task\.loss 'hubert'\. Did you mean huber\?.*charbonnier, huber, l1, l1_ssim, mse, ssim"
    ):
        named("hubert")


@pytest.mark.parametrize("size", [(2, 1, 13, 17), (1, 3, 3, 40), (2, 2, 23), (1, 1, 5)])
@pytest.mark.parametrize("span", [1.0, 2.0])
def test_ssim_is_one_minus_the_metric(size: tuple[int, ...], span: float) -> None:
    generator = torch.Generator().manual_seed(1)
    target = span * torch.rand(size, generator=generator)
    prediction = target + 0.1 * torch.randn(size, generator=generator)
    loss = build("ssim", span=span)(prediction, target)
    assert loss.item() == pytest.approx(1 - Ssim(span).score(prediction, target).mean().item(), rel=1e-6)
    assert build("ssim", span=span)(target, target).item() == pytest.approx(0, abs=1e-6)
    assert 0 < loss.item() < 2


def test_descending_ssim_brings_the_prediction_to_the_target() -> None:
    generator = torch.Generator().manual_seed(2)
    target = torch.rand(1, 1, 16, 13, generator=generator)
    prediction = (0.5 + 0.1 * torch.randn(1, 1, 16, 13, generator=generator)).requires_grad_()
    optimizer = torch.optim.Adam([prediction], lr=0.02)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = named("ssim")(prediction, target)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert losses[-1] < 0.05 < 0.5 < losses[0]


def test_gradient_of_ssim_is_finite_where_prediction_and_target_are_constant() -> None:
    prediction = torch.full((1, 1, 12, 12), 0.5, requires_grad=True)
    named("ssim")(prediction, torch.full((1, 1, 12, 12), 0.4)).backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()


def test_mixes_are_weighted_sums() -> None:
    generator = torch.Generator().manual_seed(3)
    prediction, target = torch.rand(2, 2, 1, 12, 15, generator=generator)
    parts = {name: build(name, span=2.0)(prediction, target).item() for name in ("mse", "l1", "ssim")}
    mixed = build({"mse": 0.8, "ssim": 3}, span=2.0)(prediction, target)
    assert mixed.item() == pytest.approx(0.8 * parts["mse"] + 3 * parts["ssim"], rel=1e-6)
    zhao = build("l1_ssim", span=2.0)(prediction, target)
    assert zhao.item() == pytest.approx(0.16 * parts["l1"] / 2 + 0.84 * parts["ssim"], rel=1e-6)


def test_the_task_tells_the_loss_its_range() -> None:
    generator = torch.Generator().manual_seed(4)
    prediction, target = 2 * torch.rand(2, 2, 1, 12, 15, generator=generator) - 1
    task = Restore(loss="ssim", data_range=(-1, 1))
    assert task.criterion(prediction, target).item() == build("ssim", span=2.0)(prediction, target).item()
    assert task.criterion(prediction, target).item() != named("ssim")(prediction, target).item()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({}, r"task\.loss is an empty mapping"),
        ({"mse": 0}, r"task\.loss\.mse \(=0\) must be a positive number"),
        ({"mse": True}, r"task\.loss\.mse \(=True\)"),
        ({"l1": float("nan")}, r"task\.loss\.l1 \(=nan\)"),
        ({"mse": 0.5, "sim": 0.5}, r"unknown task\.loss 'sim'. Did you mean ssim"),
        (["mse"], r"task\.loss \(=\['mse'\]\) must be a name, a mapping"),
        (None, r"task\.loss \(=None\) must be"),
    ],
)
def test_wrong_losses_are_refused(loss: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(loss, span=1.0)


@pytest.mark.parametrize("size", [(1, 1, 2, 9), (1, 1, 4, 4, 4), (2, 3)])
def test_ssim_refuses_what_has_no_window(size: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"task\.loss: ssim compares signals and images with sides of at least 3"):
        named("ssim")(torch.zeros(size), torch.zeros(size))
