"""Classify: a class for each item, by the cross-entropy of logits; items mixed, targets smoothed, classes weighted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from onn_runner.checks import positive
from onn_runner.errors import ConfigError
from onn_runner.metric.classification import answered
from onn_runner.task.base import Step, StepOutput
from onn_runner.task.captions import captioned

Mix = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(inputs [B, C, *S], classes [B]) -> mixed inputs, shares of the classes [B, K]."""


@dataclass(frozen=True, kw_only=True)
class Classify:
    """Raises ConfigError for data without classes, and for a prediction that has not one logit for each class.

    The loss is a mean over items, so that batches of one update add up. Smoothing and weights act in validation too,
    so that both curves show the same; what is mixed is drawn from torch's generator, which the trainer keys.
    """

    label_smoothing: float = 0.0
    """Share of the target that is spread evenly over all classes. Source: Szegedy et al., 2016."""
    mixup: float = 0.0
    """Items mixed in pairs, shares from Beta(mixup, mixup); 0: not. Source: Zhang et al., mixup, 2018."""
    cutmix: float = 0.0
    """A rectangle out of another picture, its area from Beta(cutmix, cutmix); 0: not. With mixup, one of both a batch.
    Source: Yun et al., CutMix, 2019."""
    class_weights: str | Sequence[float] | None = None
    """What an item of each class counts: "balanced" is inverse to their number in training, or numbers in the order of
    the classes, of which the ratios matter."""
    classes: Sequence[str] | None = None
    """Names, in the order of the logits; the data's."""
    data_range: Sequence[float] = (0.0, 1.0)
    """Of the inputs' values: what pictures show from black to white."""
    weights: tuple[float, ...] | None = None
    """As `for_training` finds them; mean 1 over the training items."""
    of_classes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.classes is None:
            raise ConfigError("task=classify needs data with classes, such as data=digits or data=image_folder")
        smoothing = self.label_smoothing
        if isinstance(smoothing, bool) or not isinstance(smoothing, int | float) or not 0 <= smoothing < 1:
            raise ConfigError(f"task.label_smoothing (={smoothing!r}) must be a share from 0 to below 1, such as 0.1")
        for name in ("mixup", "cutmix"):
            value = getattr(self, name)
            if isinstance(value, bool) or value != 0:
                positive(f"task.{name}", value, "0 or a positive number, such as 0.2 or 1.0")
        _check_weights(self.class_weights, self.classes)

    def for_training(self, labels: Sequence[int]) -> Classify:
        """The task with the weights of its classes, given the class of each training item."""
        if self.class_weights is None:
            return self
        assert self.classes is not None
        counts = torch.bincount(torch.tensor(list(labels)), minlength=len(self.classes)).double()
        if isinstance(self.class_weights, str):
            # A class that does not train counts as if it had one item.
            given = 1 / counts.clamp_min(1)
        else:
            given = torch.tensor([float(weight) for weight in self.class_weights], dtype=torch.float64)
        mean = (given * counts).sum() / counts.sum()
        return replace(self, weights=tuple((given / mean).tolist()))

    def train_step(self, network: nn.Module, batch: dict[str, Any], step: Step) -> StepOutput:
        inputs, target = batch["input"], batch["target"]
        mixing = self._mixing()
        shares = None
        if mixing is not None:
            inputs, shares = mixing(inputs, target)
            # Scored as what there is most of.
            target = shares.argmax(1)
        prediction = self._predict(network, inputs)
        loss = self._loss(prediction, target if shares is None else shares)
        step(loss)
        return StepOutput(loss.detach(), prediction.detach(), target)

    def eval_step(self, network: nn.Module, batch: dict[str, Any]) -> StepOutput:
        """The loss is that of the items whose logits are finite; NaN where none has such."""
        prediction, target = self._predict(network, batch["input"]), batch["target"]
        known = answered(prediction)
        scored = int(known.sum())
        loss = self._loss(prediction[known], target[known]) if scored else prediction.new_full((), math.nan)
        return StepOutput(loss.detach(), prediction, target, scored)

    def preview(self, batch: dict[str, Any], output: StepOutput) -> dict[str, Tensor]:
        """Pictures with the predicted class, its probability and the true one below; nothing for signals."""
        inputs: Tensor = batch["input"]
        if inputs.ndim != 4 or self.classes is None:
            return {}
        low, high = self.data_range
        chances, guesses = output.prediction.softmax(1).max(1)
        known = answered(output.prediction)
        words, right = [], []
        for chance, guess, true, is_known in zip(
            chances.tolist(), guesses.tolist(), output.target.tolist(), known.tolist(), strict=True
        ):
            answer = f"{self.classes[guess]}, {100 * chance:.0f} %" if is_known else "no finite answer"
            words.append((answer, f"is {self.classes[true]}"))
            right.append(is_known and guess == true)
        shown = ((inputs.detach().float().cpu() - low) / (high - low)).clamp(0, 1)
        return {"predicted_and_true_class": captioned(shown, words, right=right)}

    def _predict(self, network: nn.Module, inputs: Tensor) -> Tensor:
        prediction: Tensor = network(inputs)
        assert self.classes is not None
        if prediction.shape != (len(inputs), len(self.classes)):
            raise ConfigError(
                f"the network gives {tuple(prediction.shape)} for {len(inputs)} items of {len(self.classes)} classes: "
                "choose one that classifies, such as network=resnet or network=vgg"
            )
        return prediction

    def _loss(
        self,
        prediction: Tensor,  # [B, K]
        target: Tensor,  # [B] classes, or [B, K] shares
    ) -> Tensor:
        weight = None if self.weights is None else prediction.new_tensor(self.weights)
        smoothing = float(self.label_smoothing)
        return functional.cross_entropy(prediction, target, weight, reduction="none", label_smoothing=smoothing).mean()

    def _mixing(self) -> Mix | None:
        """What mixes this batch."""
        both = self.mixup > 0 and self.cutmix > 0
        if both:
            return self._mixes[int(torch.rand(()) < 0.5)]
        return self._mixes[0] if self._mixes else None

    @cached_property
    def _mixes(self) -> list[Mix]:
        assert self.classes is not None
        found: list[Mix] = []
        if self.mixup > 0:
            found.append(_mixup(float(self.mixup), len(self.classes)))
        if self.cutmix > 0:
            found.append(_cutmix(float(self.cutmix), len(self.classes)))
        return found


def _mixup(alpha: float, classes: int) -> Mix:
    from torchvision.transforms import v2

    transform = v2.MixUp(alpha=alpha, num_classes=classes)

    def mix(inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        # It takes pictures only, and signals mix as rows of pixels do.
        mixed, shares = transform(inputs.reshape(*inputs.shape[:2], 1, -1), target)
        return mixed.reshape(inputs.shape), shares

    return mix


def _cutmix(alpha: float, classes: int) -> Mix:
    from torchvision.transforms import v2

    transform = v2.CutMix(alpha=alpha, num_classes=classes)

    def mix(inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if inputs.ndim != 4:
            raise ConfigError(f"task.cutmix cuts rectangles, which items of {inputs.ndim - 2} axes do not have: use 0")
        mixed, shares = transform(inputs, target)
        return mixed, shares

    return mix


def _check_weights(weights: Any, classes: Sequence[str]) -> None:
    """Raises ConfigError for what `class_weights` cannot be."""
    if weights is None or weights == "balanced":
        return
    wanted = f"null, balanced, or a list of {len(classes)} positive numbers, one for each class"
    listed = isinstance(weights, Sequence) and not isinstance(weights, str)
    numeric = listed and all(isinstance(one, int | float) and not isinstance(one, bool) for one in weights)
    if not numeric or len(weights) != len(classes) or not all(math.isfinite(one) and one > 0 for one in weights):
        raise ConfigError(f"task.class_weights (={weights!r}) must be {wanted}")
