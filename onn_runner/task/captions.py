"""Pictures enlarged to a readable size, with lines of text below and a frame that says whether they are right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

SIDE = 112
"""Least width of a picture, in pixels; of the text, 11 a line."""
LINE, FRAME = 14, 3
RIGHT, WRONG = (0, 158, 115), (213, 94, 0)
"""Okabe and Ito's green and vermilion."""


def captioned(
    pictures: Tensor,  # [N, C, H, W] in [0, 1]
    lines: Sequence[Sequence[str]],
    *,
    right: Sequence[bool],
) -> Tensor:
    """[N, 3, H', W'], all of one size; of other than three channels, the first in grey."""
    return torch.stack([_one(*each) for each in zip(pictures, lines, right, strict=True)])


def _one(picture: Tensor, lines: Sequence[str], right: bool) -> Tensor:
    values = picture if len(picture) == 3 else picture[:1].expand(3, -1, -1)
    pixels = (values * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    factor = max(1, -(-SIDE // pixels.shape[1]))
    enlarged = np.kron(pixels, np.ones((factor, factor, 1), np.uint8))
    height, width = enlarged.shape[:2]
    sheet = Image.new("RGB", (width + 2 * FRAME, height + 2 * FRAME + LINE * len(lines) + FRAME), "white")
    draw = ImageDraw.Draw(sheet)
    draw.rectangle((0, 0, width + 2 * FRAME - 1, height + 2 * FRAME - 1), fill=RIGHT if right else WRONG)
    sheet.paste(Image.fromarray(enlarged), (FRAME, FRAME))
    font = ImageFont.load_default(11)
    for number, text in enumerate(lines):
        draw.text((FRAME, height + 2 * FRAME + number * LINE), text, fill="black", font=font)
    return torch.from_numpy(np.array(sheet)).permute(2, 0, 1).float() / 255
