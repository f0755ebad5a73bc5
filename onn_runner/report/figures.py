"""What all figures share: matplotlib without pyplot and without the user's own settings, colours, sizes in inches."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

DPI = 110
STYLE: dict[str, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    # Pixels stay sharp where they are enlarged three times or more, and do not alias below.
    "image.interpolation": "auto",
    # Names of files and items may hold dollar signs.
    "text.parse_math": False,
}
BLUE, ORANGE, GREEN, GREY, BLACK = "#0072B2", "#D55E00", "#009E73", "#999999", "#000000"
"""Okabe and Ito's, which colour-blind readers tell apart."""
BAD = (0.0, 1.0, 1.0)
"""Cyan: a value that is not finite; no picture and no colour map here has it."""


@contextlib.contextmanager
def plain_style() -> Iterator[None]:
    """The same figures whatever matplotlibrc says (LaTeX, fonts, backends); characters without a glyph are no news."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def blank(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    figure = Figure(figsize=(width, height), dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def axes_at(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place counted in inches from the figure's upper left corner."""
    whole_width, whole_height = figure.get_size_inches()
    bottom = 1 - (top + height) / whole_height
    return figure.add_axes((left / whole_width, bottom, width / whole_width, height / whole_height))


def text_at(figure: Figure, left: float, top: float, text: str, **options: Any) -> None:
    """Text whose upper left corner lies there, in inches from the figure's."""
    width, height = figure.get_size_inches()
    # Half a surrogate pair, out of a damaged file name, is a question mark.
    text = text.encode("utf-8", "replace").decode()
    figure.text(left / width, 1 - top / height, text, va="top", **options)


def png(figure: Figure) -> bytes:
    """The figure as PNG, the same bytes for the same figure: no version and no date inside."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def shortened(text: str, most: int) -> str:
    """One line of at most so many characters, the middle left out."""
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    front = (most - 1) // 2
    return f"{text[:front]}…{text[len(text) - (most - 1 - front) :]}"
