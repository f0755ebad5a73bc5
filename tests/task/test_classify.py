"""The loss against torch's formula, weights of classes, what is mixed, previews; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onn_runner.errors import ConfigError
from onn_runner.task.base import StepOutput
from onn_runner.task.classify import Classify

CLASSES = ["cat", "dog", "frog"]


class Table(nn.Module):
    """Logits that do not depend on the input, and a look at what came in."""

    def __init__(self, count: int = 6, classes: int = 3) -> None:
        super().__init__()
        values = torch.randn(count, classes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        self.logits = nn.Parameter(values)

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x
        return self.logits[: len(x)]


def batch(count: int = 6, shape: tuple[int, ...] = (1, 4, 6)) -> dict[str, Tensor]:
    inputs = torch.rand(count, *shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return {"input": inputs, "target": torch.arange(count) % 3, "index": torch.arange(count)}


def losses(task: Classify, network: Table, given: dict[str, Tensor]) -> tuple[float, float]:
    """Of training, where nothing is mixed, and of validation."""
    trained = task.train_step(network, given, lambda loss, optimizer="main": loss.backward())
    assert trained.target.tolist() == given["target"].tolist()
    return float(trained.loss), float(task.eval_step(network, given).loss)


@pytest.mark.parametrize("smoothing", [0, 0.1, 0.5])
def test_the_loss_is_torchs_cross_entropy(smoothing: float) -> None:
    network, given = Table(), batch()
    task = Classify(classes=CLASSES, label_smoothing=smoothing)
    criterion = nn.CrossEntropyLoss(label_smoothing=smoothing)
    loss = criterion(network.logits, given["target"])
    (gradient,) = torch.autograd.grad(loss, network.logits)
    wanted = loss.item()
    assert losses(task, network, given) == pytest.approx((wanted, wanted), rel=1e-14)
    torch.testing.assert_close(network.logits.grad, gradient)


def test_smoothing_by_hand() -> None:
    network, given = Table(), batch()
    chances = network.logits.softmax(1)
    wanted = -sum(
        (0.9 * (k == t) + 0.1 / 3) * chances[i, k].log()
        for i, t in enumerate(given["target"].tolist())
        for k in range(3)
    )
    assert losses(Classify(classes=CLASSES, label_smoothing=0.1), network, given)[0] == pytest.approx(wanted.item() / 6)


def test_balanced_weights_make_classes_count_alike() -> None:
    labels = [0] * 6 + [1] * 3 + [2]
    task = Classify(classes=CLASSES, class_weights="balanced").for_training(labels)
    assert task.weights == pytest.approx((10 / 18, 10 / 9, 10 / 3))
    # Over the training items the mean weight is 1, and the sum of each class the same.
    assert sum(task.weights[label] for label in labels) == pytest.approx(10)  # type: ignore[index]
    network, given = Table(), batch()
    single = functional.cross_entropy(network.logits, given["target"], reduction="none")
    wanted = sum(task.weights[t] * single[i].item() for i, t in enumerate(given["target"].tolist())) / 6  # type: ignore[index]
    assert losses(task, network, given) == pytest.approx((wanted, wanted))


def test_of_given_weights_the_ratios_matter_and_a_missing_class_is_no_trouble() -> None:
    one = Classify(classes=CLASSES, class_weights=[1, 2, 4]).for_training([0, 1, 1])
    ten = Classify(classes=CLASSES, class_weights=[10.0, 20.0, 40.0]).for_training([0, 1, 1])
    assert one.weights == pytest.approx((0.6, 1.2, 2.4))
    assert ten.weights == pytest.approx(one.weights)
    assert Classify(classes=CLASSES, class_weights="balanced").for_training([0, 1]).weights == (1, 1, 1)
    plain = Classify(classes=CLASSES)
    assert plain.for_training([0]) is plain


@pytest.mark.parametrize("shape", [(2, 9), (1, 4, 6), (1, 3, 4, 5)])
def test_mixed_items_have_mixed_targets(shape: tuple[int, ...]) -> None:
    network, given = Table(), batch(shape=shape)
    task = Classify(classes=CLASSES, mixup=0.7, label_smoothing=0.1)
    torch.manual_seed(3)
    output = task.train_step(network, given, lambda loss, optimizer="main": None)
    first, second = given["input"][0].flatten(), given["input"][-1].flatten()
    mixed = network.seen[0].flatten()
    share = float(((mixed - second) / (first - second)).median())
    assert 0 < share < 1
    for place in range(6):
        # torchvision mixes each item with the one before it.
        wanted = share * given["input"][place] + (1 - share) * given["input"][place - 1]
        torch.testing.assert_close(network.seen[place], wanted)
    own, other = (
        functional.cross_entropy(network.logits, target, label_smoothing=0.1)
        for target in (given["target"], given["target"].roll(1))
    )
    assert float(output.loss) == pytest.approx(share * own.item() + (1 - share) * other.item(), rel=1e-5)
    more = given["target"] if share > 0.5 else given["target"].roll(1)
    assert output.target.tolist() == more.tolist()


def test_cut_pictures_have_targets_by_area() -> None:
    network, given = Table(), batch(shape=(1, 8, 10))
    task = Classify(classes=CLASSES, cutmix=1.0)
    torch.manual_seed(0)
    output = task.train_step(network, given, lambda loss, optimizer="main": None)
    own = network.seen == given["input"]
    assert torch.equal(network.seen[~own], given["input"].roll(1, 0)[~own])
    share = float(own.double().mean())
    losses = [functional.cross_entropy(network.logits, t) for t in (given["target"], given["target"].roll(1))]
    assert float(output.loss) == pytest.approx(share * losses[0].item() + (1 - share) * losses[1].item(), rel=1e-5)


def test_what_is_mixed_depends_on_torchs_generator_alone_and_not_in_validation() -> None:
    task, given = Classify(classes=CLASSES, mixup=0.4, cutmix=1.0), batch()

    def seen(seed: int) -> Tensor:
        network = Table()
        torch.manual_seed(seed)
        task.train_step(network, given, lambda loss, optimizer="main": None)
        return network.seen

    drawn = [seen(seed) for seed in range(8)]
    assert all(torch.equal(one, seen(seed)) for seed, one in enumerate(drawn))
    values = set(given["input"].flatten().tolist())
    # Some batches are cut, others mixed.
    kept = [set(one.flatten().tolist()) <= values for one in drawn]
    assert any(kept)
    assert not all(kept)
    network = Table()
    task.eval_step(network, given)
    assert torch.equal(network.seen, given["input"])


def test_previews_show_pictures_with_their_classes() -> None:
    task = Classify(classes=CLASSES, data_range=(-1, 1))
    output = StepOutput(torch.zeros(()), torch.eye(3)[[0, 0]], torch.tensor([0, 2]))
    for channels in (1, 3, 4):
        given = {"input": torch.rand(2, channels, 5, 7) * 2 - 1}
        (shown,) = task.preview(given, output).values()
        assert shown.shape[:2] == (2, 3)
        assert shown.shape[3] >= 112
        assert 0 <= float(shown.min()) <= float(shown.max()) <= 1
        frames = (shown[:, :, 0, 0] * 255).round().int().tolist()
        assert frames == [[0, 158, 115], [213, 94, 0]]
    assert task.preview({"input": torch.rand(2, 1, 9)}, output) == {}


def test_previews_take_no_item_without_an_answer_for_right() -> None:
    output = StepOutput(torch.zeros(()), torch.tensor([[torch.nan, 0, 0]]), torch.tensor([0]))
    (shown,) = Classify(classes=CLASSES).preview({"input": torch.rand(1, 1, 5, 7)}, output).values()
    assert (shown[0, :, 0, 0] * 255).round().int().tolist() == [213, 94, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": None}, "task=classify needs data with classes, such as data=digits or data=image_folder"),
        ({"label_smoothing": 1}, r"task.label_smoothing \(=1\) must be a share from 0 to below 1"),
        ({"label_smoothing": True}, "task.label_smoothing"),
        ({"mixup": -0.2}, r"task.mixup \(=-0.2\) must be 0 or a positive number"),
        ({"mixup": "a lot"}, "task.mixup"),
        ({"cutmix": float("inf")}, "task.cutmix"),
        (
            {"class_weights": [1, 2]},
            r"task.class_weights \(=\[1, 2\]\) must be null, balanced, or a list of 3 positive",
        ),
        ({"class_weights": [1, 2, 0]}, "task.class_weights"),
        ({"class_weights": "equal"}, "task.class_weights"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Classify(**{"classes": CLASSES, **changes})


def test_networks_that_do_not_classify_and_signals_to_cut_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"the network gives \(6, 2\) for 6 items of 3 classes: choose one that"):
        Classify(classes=CLASSES).eval_step(Table(classes=2), batch())
    with pytest.raises(ConfigError, match=r"task.cutmix cuts rectangles, which items of 1 axes do not have: use 0"):
        Classify(classes=CLASSES, cutmix=1.0).train_step(Table(), batch(shape=(1, 9)), lambda loss: None)


def test_the_evaluation_loss_is_that_of_the_items_with_an_answer() -> None:
    network, given = Table(), batch()
    task = Classify(classes=CLASSES)
    with torch.no_grad():
        network.logits[2, 0] = torch.inf
    kept = [0, 1, 3, 4, 5]
    wanted = functional.cross_entropy(network.logits[kept], given["target"][kept])
    output = task.eval_step(network, given)
    torch.testing.assert_close(output.loss, wanted.detach())
    assert output.scored == 5
    assert not output.prediction[2].isfinite().all()
    # Minus infinity for a wrong class alone would give a finite cross-entropy.
    with torch.no_grad():
        network.logits[:] = torch.eye(3)[given["target"]].log()
    output = task.eval_step(network, given)
    assert (output.scored, bool(output.loss.isnan())) == (0, True)
    with torch.no_grad():
        network.logits[:4, 0] = torch.nan
    assert not task.train_step(network, given, lambda loss, optimizer="main": None).loss.isfinite()
