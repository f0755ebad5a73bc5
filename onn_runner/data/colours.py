"""What a TIFF says its numbers mean, and the grey or red, green and blue light that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PHOTOMETRIC = 262
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, SEPARATED = 0, 1, 2, 5
OTHERS = {3: "a palette", 4: "a mask", 6: "YCbCr", 8: "CIELab", 9: "ICCLab", 10: "ITULab"}
OTHERS |= {32803: "a colour filter's mosaic", 32844: "LogL", 32845: "LogLuv", 34892: "linear raw"}
PREMULTIPLIED = 1


@dataclass(frozen=True)
class Meaning:
    """`photometric`: the tag's value; `extra`: ExtraSamples, a code for each band that is no colour."""

    photometric: int
    extra: tuple[int, ...] = ()


def light(
    values: Array,  # [H, W, bands] in [0, 1]
    meaning: Meaning | None,  # None: grey, grey and alpha, RGB, or RGB and alpha
) -> Array:
    """[H, W, 1] or [H, W, 3] in [0, 1]. Transparency is left out: where colours were multiplied by it, that is undone.

    Raises: ValueError for colours that are neither grey, RGB nor CMYK, and for more bands than those have.
    """
    bands = values.shape[2]
    if meaning is None:
        return values[..., : 3 if bands > 2 else 1]
    kind = meaning.photometric
    wanted = {WHITE_IS_ZERO: 1, BLACK_IS_ZERO: 1, RGB: 3, SEPARATED: 4}.get(kind)
    if wanted is None:
        raise ValueError(f"its colours are {OTHERS.get(kind, f'of kind {kind}')}, to be saved as RGB")
    if bands < wanted or (wanted == 1 and bands > 2):
        raise ValueError(f"it has {bands} bands, to be saved as one grey or RGB picture")
    colours = values[..., :wanted]
    if meaning.extra[:1] == (PREMULTIPLIED,) and bands > wanted:
        alpha = values[..., wanted : wanted + 1]
        colours = np.divide(colours, alpha, out=np.zeros_like(colours), where=alpha > 0).clip(max=1)
    if kind == WHITE_IS_ZERO:
        return 1 - colours
    return (1 - colours[..., :3]) * (1 - colours[..., 3:]) if kind == SEPARATED else colours
