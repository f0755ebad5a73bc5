"""(blurred photograph + noise, photograph) pairs: out of focus, shaken, or blurred by a Gaussian."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from onn_runner.data import blur as blurs
from onn_runner.data.degraded import SQUARE, turned
from onn_runner.data.noise import GREY_LEVELS
from onn_runner.data.photographic import Photographic, noise_level
from onn_runner.errors import ConfigError
from onn_runner.seeding import Part, generator


class Deblur(Photographic):
    """Photographs in [0, 1] and their blurred, noisy copies; the blur is the same for all.

    Whole photographs are blurred, with mirrored borders, then cut, so that patches have true borders. Patches are only
    turned in ways that leave the kernel as it is.

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
        kernel: str = "gaussian",
        blur: float = 1.6,
        length: int = 9,
        angle: float = 30.0,
        radius: float = 3.0,
        sigma: float = 2.55,
        augmentation: bool = True,
        seed: int = 0,
    ) -> None:
        self.blur = blurs.named(kernel, blur=blur, length=length, angle=angle, radius=radius)
        self.kernel = self.blur.weights()
        self.sigma = noise_level(sigma)
        self.orientations = _unchanged(torch.from_numpy(self.kernel))
        self._made: dict[int, Tensor] = {}
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
        for number in range(len(self.photographs)):
            self.prepared(number)

    def prepared(self, number: int) -> Tensor:
        """[C, H, W], the blurred photograph; made once."""
        if number not in self._made:
            photograph = self.photographs[number]
            if any(k > side for k, side in zip(self.kernel.shape, photograph.size, strict=True)):
                wide = " x ".join(str(side) for side in self.kernel.shape)
                raise ConfigError(
                    f"the blur's kernel ({wide} pixels) is larger than photograph '{photograph.name}' "
                    f"({photograph.size[0]} x {photograph.size[1]}): blur less, or {self.cutting.leave_out}"
                )
            self._made[number] = torch.from_numpy(blurs.blurred(photograph.pixels.numpy(), self.kernel))
        return self._made[number]

    def degrade(self, prepared: Tensor, *key: Part) -> Tensor:
        if not self.sigma:
            return prepared.clone()
        noise = torch.randn(prepared.shape, generator=generator("noise", *key))
        return noise.mul_(self.sigma / GREY_LEVELS).add_(prepared)

    def settings(self) -> tuple[object, ...]:
        return "deblur", self.blur, self.sigma, self.augmentation, self.seed, self.cutting.size

    def describe(self) -> list[str]:
        noise = f"gaussian noise, sigma {self.sigma:g} of {GREY_LEVELS} grey levels" if self.sigma else "no noise"
        high, wide = self.kernel.shape
        return [
            *self.describe_photographs(),
            self.describe_cutting(),
            f"inputs: {self.blur.describe()}, kernel of {high} x {wide}, mirrored borders; then {noise}, not clipped",
            self.describe_draws("noise" if self.sigma else ""),
        ]


def _unchanged(kernel: Tensor) -> tuple[int, ...]:
    """The orientations in which the kernel is itself."""
    square = kernel.shape[0] == kernel.shape[1]
    codes = [code for code in SQUARE if square or code < 4]
    # A kernel's weights are at most 1 and computed in float64: a thousand roundings.
    return tuple(code for code in codes if np.allclose(turned(kernel[None], code)[0], kernel, rtol=0, atol=1e-13))
