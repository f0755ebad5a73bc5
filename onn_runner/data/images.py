"""(image + noise, image) pairs from a folder of the user's own clean images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass

from torch import Tensor

from onn_runner.checks import flag
from onn_runner.data import noise as noises
from onn_runner.data.collection import Collection, Files
from onn_runner.data.denoise import chosen_noise
from onn_runner.data.files import find
from onn_runner.errors import ConfigError
from onn_runner.seeding import Part, generator


class Images(Collection):
    """Clean images in [0, 1] and their noisy copies.

    Raises: ConfigError for each value that cannot be carried out, and for files that cannot be used.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        groups: str = "file",
        colour: bool | None = None,
        max_side: int | None = None,
        patch: int | Sequence[int] = 48,
        patches: int | None = 80,
        placement: str = "grid",
        noise: str | noises.Noise = "gaussian",
        sigma: float = 25.0,
        amount: float = 0.1,
        peak: float = 30.0,
        spread: float = 0.2,
        clip: bool = False,
        whole: bool = True,
        skip_bad: bool = False,
        in_memory: bool | None = None,
        augmentation: bool = True,
        seed: int = 0,
    ) -> None:
        self.clip = flag("data.clip", clip)
        self.noise = chosen_noise(noise, sigma=sigma, amount=amount, peak=peak, spread=spread)
        if path is None:
            raise ConfigError("data=images needs data.path: a folder of clean images, to which noise is added")
        found = find(path, "data.path")
        names = [file.name for file in found.files]
        super().__init__(
            Files(names, found.files, None, [], found.others, path, "data.path"),
            groups=groups,
            colour=colour,
            max_side=max_side,
            patch=patch,
            patches=patches,
            placement=placement,
            whole=whole,
            skip_bad=skip_bad,
            in_memory=in_memory,
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
            *self.describe_files(),
            f"{self.describe_cutting()}; {self.describe_memory()}",
            f"{self.noise.describe()}, {clipping}",
            self.describe_draws("noise"),
        ]
