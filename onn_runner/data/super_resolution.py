"""(photograph reduced by 2, 3 or 4, photograph) pairs, small or enlarged again: what a reduction has lost."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from onn_runner.checks import flag, refuse
from onn_runner.data.noise import GREY_LEVELS
from onn_runner.data.photographic import Photographic, noise_level
from onn_runner.seeding import Part, generator

FACTORS = (2, 3, 4)
# Bicubic weights reach two pixels to either side.
REACH = 3


class SuperResolution(Photographic):
    """Photographs in [0, 1] and what is left of them after an antialiased bicubic reduction by `data.factor`.

    Whole photographs are reduced, then cut, so that patches have true borders. `data.enlarge`: the input is enlarged
    bicubically to the target's size (the protocol of SRCNN); otherwise the network sees the small picture.

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
        factor: int = 2,
        enlarge: bool = True,
        sigma: float = 0.0,
        augmentation: bool = True,
        seed: int = 0,
    ) -> None:
        if isinstance(factor, bool) or not isinstance(factor, int) or factor not in FACTORS:
            raise refuse("data.factor", factor, "2, 3 or 4")
        self.reduction = factor
        self.enlarge = flag("data.enlarge", enlarge)
        self.factor = 1 if self.enlarge else factor
        self.sigma = noise_level(sigma)
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
            step=factor,
            why=f"data.factor={factor}",
        )
        for number in range(len(self.photographs)):
            self.prepared(number)

    def prepared(self, number: int) -> Tensor:
        """[C, H / factor, W / factor], the photograph without what the reduction takes; made once."""
        if number not in self._made:
            # Clipped as a camera's would be; what overshoots when that is enlarged stays.
            small = resized(self.picture(number), 1 / self.reduction).clamp_(0, 1)
            self._made[number] = resized(small, self.reduction) if self.enlarge else small
        return self._made[number]

    def degrade(self, prepared: Tensor, *key: Part) -> Tensor:
        """Noise of the small picture: where that is enlarged, so is the noise (bicubic enlarging is linear)."""
        if not self.sigma:
            return prepared.clone()
        source, deviation = generator("noise", *key), self.sigma / GREY_LEVELS
        if not self.enlarge:
            return torch.randn(prepared.shape, generator=source).mul_(deviation).add_(prepared)
        channels, *size = prepared.shape
        # A margin stands for the pixels around a patch.
        small = torch.randn(channels, *(side // self.reduction + 2 * REACH for side in size), generator=source)
        margin = REACH * self.reduction
        noise = resized(small, self.reduction)[:, margin:-margin, margin:-margin]
        return (noise * deviation).add_(prepared)

    def settings(self) -> tuple[object, ...]:
        own = ("super-resolution", self.reduction, self.enlarge, self.sigma)
        return *own, self.augmentation, self.seed, self.cutting.size

    def describe(self) -> list[str]:
        then = "enlarged again to their size" if self.enlarge else "as they are"
        noise = (
            f"gaussian noise, sigma {self.sigma:g} of {GREY_LEVELS} grey levels, on"
            if self.sigma
            else "without noise on"
        )
        return [
            *self.describe_photographs(),
            self.describe_cutting(),
            f"inputs: photographs reduced by {self.reduction} (bicubic, antialiased), {then}; {noise} the reduced ones",
            self.describe_draws("noise" if self.sigma else ""),
        ]


def resized(
    picture: Tensor,  # [C, H, W]
    scale: float,
) -> Tensor:
    """Bicubic with a = -0.5, as PIL and Matlab's imresize have it; antialiased where it reduces."""
    size = [round(side * scale) for side in picture.shape[1:]]
    # Without `antialias` torch takes a = -0.75, when it enlarges too.
    return functional.interpolate(picture[None], size=size, mode="bicubic", antialias=True)[0]
