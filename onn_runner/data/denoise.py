"""(photograph + noise, photograph) pairs: patches for training and testing, whole photographs for testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass

from torch import Tensor

from onn_runner.checks import flag
from onn_runner.data import noise as noises
from onn_runner.data.photographic import Photographic
from onn_runner.seeding import Part, generator


class Denoise(Photographic):
    """Photographs in [0, 1] and their noisy copies; the group of a patch is its photograph.

    Raises: ConfigError for each value that cannot be carried out.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        photographs: Sequence[str] | None = None,
        colour: bool = False,
        max_side: int = 512,
        patch: int | Sequence[int] = 48,
        patches: int | None = 80,
        placement: str = "grid",
        noise: str | noises.Noise = "gaussian",
        sigma: float = 25.0,
        amount: float = 0.1,
        peak: float = 30.0,
        spread: float = 0.2,
        clip: bool = False,
        augmentation: bool = True,
        seed: int = 0,
    ) -> None:
        self.clip = flag("data.clip", clip)
        self.noise = chosen_noise(noise, sigma=sigma, amount=amount, peak=peak, spread=spread)
        super().__init__(
            path=path,
            photographs=photographs,
            colour=colour,
            max_side=max_side,
            patch=patch,
            patches=patches,
            placement=placement,
            augmentation=augmentation,
            seed=seed,
        )

    def degrade(self, prepared: Tensor, *key: Part) -> Tensor:
        """[C, *S] with the noise of this key; clipped only where `data.clip` says so."""
        noisy = self.noise(prepared, generator("noise", *key))
        return noisy.clamp_(0, 1) if self.clip else noisy

    def settings(self) -> tuple[object, ...]:
        noise = repr(self.noise) if is_dataclass(self.noise) else self.noise.describe()
        return noise, self.clip, self.augmentation, self.seed, self.cutting.size

    def describe(self) -> list[str]:
        clipping = "noisy values clipped to [0, 1]" if self.clip else "noisy values not clipped"
        return [
            *self.describe_photographs(),
            self.describe_cutting(),
            f"{self.noise.describe()}, {clipping}",
            self.describe_draws("noise"),
        ]


def chosen_noise(noise: object, **levels: float) -> noises.Noise:
    """A user's own as it is, or the one of this name."""
    if callable(noise) and hasattr(noise, "describe"):
        return noise
    return noises.named(noise, **levels)
