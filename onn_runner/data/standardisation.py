"""(value - mean) / deviation of each channel: published numbers, the data's own, or nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onn_runner.checks import refuse
from onn_runner.data.held import CHUNK, Pictures, unit
from onn_runner.errors import ConfigError

KEY = "data.standardise"
WANTED = "null (values stay in [0, 1]), dataset, or [means, deviations] of values in [0, 1], such as [0.5, 0.25]"


@dataclass(frozen=True)
class Standardisation:
    """`means` and `deviations` of each channel, or one for all; both empty: values stay in [0, 1]."""

    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()

    @property
    def data_range(self) -> tuple[float, float]:
        """What black and white become at the most."""
        pairs = list(zip(self.means, self.deviations, strict=True)) or [(0.0, 1.0)]
        return min(-mean / spread for mean, spread in pairs), max((1 - mean) / spread for mean, spread in pairs)

    def __call__(
        self,
        pictures: Tensor,  # [..., C, H, W] uint8, or float in [0, 1]
    ) -> Tensor:
        """Float32, new."""
        values = unit(pictures)
        if not self.means:
            return values
        means, deviations = (torch.tensor(numbers)[:, None, None] for numbers in (self.means, self.deviations))
        return values.sub_(means).div_(deviations)

    def describe(self) -> str:
        if not self.means:
            return "values in [0, 1]"
        means, deviations = (", ".join(f"{n:.4g}" for n in numbers) for numbers in (self.means, self.deviations))
        return f"values in [0, 1] less {means}, over {deviations}"


def standardisation(chosen: object, pictures: Pictures, training: Sequence[int]) -> Standardisation:
    """`chosen` as the config has it; `training`: the pictures whose own mean and deviation `dataset` takes.

    Raises: ConfigError for what is none, and for as many numbers as the pictures have no channels.
    """
    if chosen is None:
        return Standardisation()
    if chosen == "dataset":
        return _own(pictures, training)
    if isinstance(chosen, str) or not isinstance(chosen, Sequence) or len(chosen) != 2:
        raise refuse(KEY, chosen, WANTED)
    means, deviations = (_numbers(chosen, part) for part in chosen)
    if any(spread <= 0 for spread in deviations):
        raise ConfigError(f"{KEY} (={_plain(chosen)}): deviations must be above 0")
    channels = pictures.shape[0]
    wrong = [len(part) for part in (means, deviations) if len(part) not in (1, channels)]
    if wrong:
        raise ConfigError(
            f"{KEY} (={_plain(chosen)}) has numbers for {wrong[0]} channels, and the pictures have {channels}: "
            "give as many, one for all, or dataset"
        )
    count = max(len(means), len(deviations))
    return Standardisation(means * (count // len(means)), deviations * (count // len(deviations)))


def _own(pictures: Pictures, training: Sequence[int]) -> Standardisation:
    """Mean and deviation over the training pictures, summed in float64."""
    total = torch.zeros(pictures.shape[0], dtype=torch.float64)
    squares, count = total.clone(), 0
    for first in range(0, len(training), CHUNK):
        for part in _stacks(pictures.take(training[first : first + CHUNK])):
            values = unit(part).double()
            total += values.sum((0, 2, 3))
            squares += values.square().sum((0, 2, 3))
            count += values.numel() // values.shape[1]
    means = total / count
    deviations = (squares / count - means.square()).clamp(min=0).sqrt()
    if not bool((deviations > 1e-6).all()):
        raise ConfigError(f"{KEY} (=dataset): all values of a channel are alike; set it to null")
    return Standardisation(tuple(means.tolist()), tuple(deviations.tolist()))


def _stacks(pictures: Tensor | list[Tensor]) -> list[Tensor]:
    return [pictures] if isinstance(pictures, Tensor) else [picture[None] for picture in pictures]


def _numbers(chosen: object, part: object) -> tuple[float, ...]:
    given: Sequence[object] = part if isinstance(part, Sequence) and not isinstance(part, str) else [part]
    numbers = []
    for number in given:
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise refuse(KEY, _plain(chosen), WANTED)
        numbers.append(float(number))
    if not numbers:
        raise refuse(KEY, _plain(chosen), WANTED)
    return tuple(numbers)


def _plain(chosen: object) -> object:
    return list(chosen) if isinstance(chosen, Sequence) and not isinstance(chosen, str) else chosen
