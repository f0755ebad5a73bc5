"""y = x + n(x) for x in [0, 1]: how a photograph is corrupted, drawn from the generator that is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor

from onn_runner.checks import choice, positive

GREY_LEVELS = 255


class Noise(Protocol):
    """A user's own noise is any object with these two methods (`data.noise._target_=...`)."""

    def __call__(self, clean: Tensor, generator: Generator) -> Tensor:
        """[C, *S] in [0, 1] -> [C, *S], not clipped."""

    def describe(self) -> str:
        """The kind and the level in the data's units: part of the run's print-out and of the data's fingerprint."""


@dataclass(frozen=True)
class Gaussian:
    """x + sigma/255 z, z standard normal."""

    sigma: float

    def __post_init__(self) -> None:
        positive("data.sigma", self.sigma, "a number of grey levels (of 255) greater than 0, such as 25")

    @property
    def deviation(self) -> float:
        """Sigma in units of the [0, 1] range."""
        return self.sigma / GREY_LEVELS

    def __call__(self, clean: Tensor, generator: Generator) -> Tensor:
        return torch.randn(clean.shape, generator=generator).mul_(self.deviation).add_(clean)

    def describe(self) -> str:
        return f"gaussian noise, sigma {self.sigma:g} of {GREY_LEVELS} grey levels"


@dataclass(frozen=True)
class SaltAndPepper:
    """Each value is replaced with probability `amount`, by 0 or 1 alike; channels independently."""

    amount: float

    def __post_init__(self) -> None:
        positive("data.amount", self.amount, "the share of values that are replaced, in (0, 1]", most=1)

    def __call__(self, clean: Tensor, generator: Generator) -> Tensor:
        u = torch.rand(clean.shape, generator=generator)
        return torch.where(u < self.amount, (u < self.amount / 2).to(clean.dtype), clean)

    def describe(self) -> str:
        return f"salt-and-pepper noise, {100 * self.amount:g} % of the values"


@dataclass(frozen=True)
class Poisson:
    """Poisson(peak x) / peak: photon counts with `peak` photons expected at white."""

    peak: float

    def __post_init__(self) -> None:
        wanted = "the number of photons at white, greater than 0 and at most 1e9, such as 30"
        positive("data.peak", self.peak, wanted, most=1e9)

    def __call__(self, clean: Tensor, generator: Generator) -> Tensor:
        return torch.poisson(clean * self.peak, generator=generator).div_(self.peak)

    def describe(self) -> str:
        return f"poisson noise, {self.peak:g} photons at white"


@dataclass(frozen=True)
class Speckle:
    """x (1 + spread z), z standard normal: noise in proportion to the value."""

    spread: float

    def __post_init__(self) -> None:
        positive("data.spread", self.spread, "a share of the value greater than 0, such as 0.2")

    def __call__(self, clean: Tensor, generator: Generator) -> Tensor:
        return torch.randn(clean.shape, generator=generator).mul_(self.spread).add_(1).mul_(clean)

    def describe(self) -> str:
        return f"speckle noise, deviation {100 * self.spread:g} % of the value"


def named(kind: object, *, sigma: float, amount: float, peak: float, spread: float) -> Noise:
    """The noise of this name, which reads its own level only; all levels are checked."""
    kinds: dict[str, Noise] = {
        "gaussian": Gaussian(sigma),
        "salt_and_pepper": SaltAndPepper(amount),
        "poisson": Poisson(peak),
        "speckle": Speckle(spread),
    }
    return kinds[choice("data.noise", kind, kinds)]
