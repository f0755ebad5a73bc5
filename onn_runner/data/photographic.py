"""Photographs in [0, 1] that are degraded: scikit-image's own or a folder's, one colour space, no side too long."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onn_runner.checks import amount, flag, refuse, whole_number
from onn_runner.data import photographs as photos
from onn_runner.data.degraded import Degraded
from onn_runner.data.patches import cutting
from onn_runner.errors import ConfigError

# A picture below this share of white is hardly one: more likely it has 12 bits in a file of 16.
DARK = 1 / 16


class Photographic(Degraded):
    """The keys that all degradations of photographs share.

    `step`, `why`: positions and sizes are multiples of it, and the key that asks for it.

    Raises: ConfigError for each value that cannot be carried out.
    """

    def __init__(
        self,
        *,
        path: str | None,
        photographs: Sequence[str] | None,
        colour: bool,
        max_side: int,
        patch: int | Sequence[int],
        patches: int | None,
        placement: str,
        augmentation: bool,
        seed: int,
        step: int = 1,
        why: str = "",
    ) -> None:
        seed = whole_number("data.seed", seed, least=0)
        turning = flag("data.augmentation", augmentation)
        leave_out = "leave it out with data.photographs" if path is None else "take its file out of data.path"
        cuts = cutting(patch, patches, placement, seed, leave_out=leave_out, step=step, why=why)
        self.max_side = whole_number("data.max_side", max_side, least=1)
        self.origin = "scikit-image" if path is None else str(path)
        found, self.grey_left_out = loaded(path, photographs, flag("data.colour", colour), self.max_side)
        super().__init__(found, cuts, augmentation=turning, seed=seed)

    def describe_photographs(self) -> list[str]:
        kind = "colour" if self.shape.target[0] == 3 else "grey"
        found = amount(len(self.photographs), f"{kind} photograph")
        scenes = amount(len({photograph.group for photograph in self.photographs}), "scene")
        sides = f"sides at most {self.max_side}"
        left_out = f", {len(self.grey_left_out)} grey ones left out" if self.grey_left_out else ""
        dark = [photograph.name for photograph in self.photographs if float(photograph.pixels.amax()) < DARK]
        told = f"no value above {DARK:g} of white in {', '.join(dark)}: 12-bit values must be scaled to 16 bits"
        return [
            f"{found} of {scenes} from {self.origin}, {sides}{left_out}",
            *([told] if dark else []),
        ]


def noise_level(sigma: object) -> float:
    """`data.sigma` where noise may be absent."""
    if isinstance(sigma, bool) or not isinstance(sigma, int | float) or not 0 <= sigma < math.inf:
        raise refuse("data.sigma", sigma, "a number of grey levels (of 255), or 0 for no noise")
    return float(sigma)


def loaded(path: object, chosen: Sequence[str] | None, colour: bool, max_side: int) -> photos.Loaded:
    """The photographs, and the names of the grey ones left out; `path` None: scikit-image's of the chosen names."""
    if path is None:
        files = photos.shipped(chosen)
    elif not isinstance(path, str):
        raise refuse("data.path", path, "a folder of image files, or null for scikit-image's photographs")
    elif chosen is not None:
        raise ConfigError("data.photographs chooses among scikit-image's photographs: give it or data.path, not both")
    else:
        files = photos.in_folder(path)
    found, grey = photos.load(files, colour=colour, max_side=max_side)
    if not found or (chosen is not None and grey):
        raise ConfigError(f"data.colour (=True) needs photographs in colour, and these are grey: {', '.join(grey)}")
    return found, grey
