"""Restore: steps, scores and side-by-side pictures."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.task.restore import Restore


def batch(channels: int = 1, dims: int = 2) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    size = (3, channels, 5, 7)[: 2 + dims]
    target = torch.rand(size, generator=generator)
    return {"input": target + 0.1 * torch.randn(size, generator=generator), "target": target, "index": torch.arange(3)}


def test_a_training_step_takes_one_update_and_gives_detached_values() -> None:
    taken: list[tuple[Tensor, str]] = []

    def step(loss: Tensor, optimizer: str = "main") -> None:
        taken.append((loss, optimizer))

    network, data = nn.Conv2d(1, 1, 1), batch()
    output = Restore().train_step(network, data, step)
    ((loss, optimizer),) = taken
    assert optimizer == "main"
    assert loss.requires_grad
    assert not output.loss.requires_grad
    assert not output.prediction.requires_grad
    assert loss.item() == output.loss.item() == (network(data["input"]) - data["target"]).square().mean().item()


def test_predictions_are_scored_as_they_are_unless_asked() -> None:
    data = batch()

    class Far(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 3 * x - 1

    plain, clipped = Restore().eval_step(Far(), data), Restore(clip=[0, 1]).eval_step(Far(), data)
    assert plain.prediction.max() > 1
    assert (clipped.prediction.min().item(), clipped.prediction.max().item()) == (0.0, 1.0)
    assert torch.equal(clipped.loss, plain.loss)


def test_the_range_is_told_to_what_is_compared() -> None:
    assert Restore().clip_range is None
    assert Restore(clip=[0, 1]).clip_range == (0.0, 1.0)


@pytest.mark.parametrize(("channels", "shown"), [(1, 1), (2, 1), (3, 3), (5, 1)])
def test_preview_is_input_output_target_side_by_side(channels: int, shown: int) -> None:
    data, task = batch(channels), Restore()
    output = task.eval_step(nn.Identity(), data)
    (pictures,) = task.preview(data, output).values()
    assert pictures.shape == (3, shown, 5, 21)
    assert torch.equal(pictures[..., :7], data["input"][:, :shown].clamp(0, 1))
    assert torch.equal(pictures[..., 14:], data["target"][:, :shown])


def test_signals_have_no_pictures() -> None:
    data, task = batch(dims=1), Restore()
    assert task.preview(data, task.eval_step(nn.Identity(), data)) == {}


def test_output_of_another_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the network gives \(3, 1, 4, 6\) where the target is \(3, 1, 5, 7\)"):
        Restore().eval_step(nn.Conv2d(1, 1, 2), batch())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "l2"}, r"unknown task\.loss 'l2'"),
        ({"loss": 3}, r"task\.loss \(=3\) must be a name, a mapping"),
        ({"clip": [1, 0]}, r"task\.clip \(=\[1, 0\]\) must be \[low, high\]"),
        ({"clip": [1]}, r"task\.clip \(=\[1\]\)"),
    ],
)
def test_wrong_values_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Restore(**changes)


def test_a_function_can_be_the_loss() -> None:
    output = Restore(loss=lambda prediction, target: (prediction - target).amax()).eval_step(nn.Identity(), batch())
    assert output.loss.item() == (batch()["input"] - batch()["target"]).max().item()


def test_preview_maps_the_range_of_the_data_to_black_and_white() -> None:
    data, task = batch(), Restore(data_range=(-1, 3))
    (pictures,) = task.preview(data, task.eval_step(nn.Identity(), data)).values()
    assert torch.equal(pictures[..., 14:], (data["target"] + 1) / 4)


@pytest.mark.parametrize("value", [(1, 0), (0, 0), (0, float("inf")), (0,), "01", None])
def test_wrong_data_ranges_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"task\.data_range \(="):
        Restore(data_range=value)
