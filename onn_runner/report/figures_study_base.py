"""Figures of a study as SVG inside an HTML page: its text, its light and dark colours, one look for each method."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from onn_runner.report.figures import plain_style, shortened

INK, FAINT, LINES, PAPER = "#fe0000", "#fe0001", "#fe0002", "#fe0003"
"""Text and axes, what stands back, grid lines, the page. These hues stand for the page's variables of `VARIABLES`."""
HUES = tuple(f"#fe001{number}" for number in range(8))
"""One for each of eight methods or seeds, light on dark and dark on light."""
VARIABLES = {INK: "ink", FAINT: "faint", LINES: "lines", PAPER: "paper"} | {
    hue: f"hue{number}" for number, hue in enumerate(HUES)
}
DASHES: tuple[Any, ...] = (
    *("-", (0, (5, 1.6)), (0, (1.2, 1.3)), (0, (6, 1.5, 1.2, 1.5))),
    *((0, (8, 2)), (0, (3, 1.2)), (0, (1, 2.2)), (0, (4, 1.5, 1, 1.5, 1, 1.5))),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
MOST = len(HUES)
"""Methods that are told apart by colour, dashes and markers; of more, the others are faint."""
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LINES,
    "grid.linewidth": 0.6,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.axisbelow": True,
}


@dataclass(frozen=True)
class Mark:
    """How one method is told from others, in every figure of a page."""

    number: int
    """Of its row in the page's tables, from 1."""
    label: str
    place: int | None = None
    """Among those with a colour of their own; None: faint."""

    @property
    def colour(self) -> str:
        return FAINT if self.place is None else HUES[self.place]

    @property
    def dashes(self) -> Any:
        return "-" if self.place is None else DASHES[self.place]

    @property
    def marker(self) -> str:
        return "." if self.place is None else MARKERS[self.place]


@contextlib.contextmanager
def page_style() -> Iterator[None]:
    """As `plain_style`, in the page's colours and with text that stays text."""
    with plain_style():
        matplotlib.rcParams.update(STYLE)
        yield


def empty(width: float, height: float) -> Figure:
    """An empty figure of so many inches, to be written as SVG."""
    figure = Figure(figsize=(width, height), dpi=72)
    # It measures text faster than that of SVG.
    FigureCanvasAgg(figure)
    return figure


def svg(figure: Figure, alternative: str) -> str:
    """The figure as an element for an HTML page, the same text for the same figure; `alternative`: what it shows."""
    alternative = clean(alternative)
    buffer = io.StringIO()
    # Within one page no two figures may share names of their parts.
    with matplotlib.rc_context({"svg.hashsalt": alternative}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(buffer.getvalue())
    prefix = "f" + hashlib.blake2b(buffer.getvalue().encode(), digest_size=5).hexdigest()
    width = figure.get_figwidth()
    for element in root.iter():
        for child in list(element):
            # A style sheet in here would be one of the whole page.
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                element.remove(child)
        _adapt(element, prefix)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": alternative, "style": f"max-width: {width * 110:.0f}px"}
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    return ElementTree.tostring(root, encoding="unicode")


def _adapt(element: ElementTree.Element, prefix: str) -> None:
    """Names of its own where they are referred to, the page's fonts, its colours as variables, no indentation."""
    attributes = element.attrib
    name = attributes.pop("id", None)
    if name is not None and element.tag in (f"{{{SVG}}}clipPath", f"{{{SVG}}}path"):
        attributes["id"] = f"{prefix}-{name}"
    for key in (f"{{{XLINK}}}href", "clip-path"):
        if key in attributes:
            attributes[key] = re.sub(r"^(url\()?#", rf"\g<1>#{prefix}-", attributes[key])
    for key in ("style", "fill", "stroke"):
        if key in attributes:
            attributes[key] = _coloured(attributes[key])
    if element.tag != f"{{{SVG}}}text":
        element.text = (element.text or "").strip()
    element.tail = (element.tail or "").strip()


def clean(text: str) -> str:
    """What XML and HTML may hold: control characters and halves of surrogate pairs are replaced."""
    return FORBIDDEN.sub("\ufffd", text)


def named(text: str, most: int) -> str:
    """One line of at most so many characters, out of text of unknown origin."""
    return shortened(clean(text), most)


def _coloured(style: str) -> str:
    style = re.sub(r"font-family:[^;]*(;|$)", "", style)
    style = re.sub(r"font: ([^;']*?px)[^;]*", r"font: \1 inherit", style)
    return re.sub("#fe00[01][0-9]", lambda found: f"var(--{VARIABLES[found[0]]})", style)


def legend(figure: Figure, entries: Sequence[Artist], *, top: float, columns: int) -> None:
    """Its upper left corner so many inches below the figure's."""
    height = figure.get_figheight()
    figure.legend(handles=entries, loc="upper left", bbox_to_anchor=(0.0, 1 - top / height), ncols=columns)


def worth_showing(
    values: Sequence[float], *, higher: bool | None, within: Sequence[float] = ()
) -> tuple[float, float] | None:
    """The range of an axis that leaves out what is so much worse that the others could not be told apart; or None.

    `values`: one a method; `within`: how far a method's own folds are apart. Left out is what lies further from the
    best than 15 times the better half does, than 5 times folds are apart, and than 30 % of the best.
    """
    known = sorted(value if higher else -value for value in values if math.isfinite(value))[::-1]
    if higher is None or len(known) < 3:
        return None
    apart = sorted(value for value in within if math.isfinite(value))
    spread = known[0] - known[(len(known) - 1) // 2]
    reach = max(15 * spread, 5 * apart[len(apart) // 2] if apart else 0.0, 0.3 * abs(known[0]))
    kept = [value for value in known if value >= known[0] - reach]
    if len(kept) == len(known):
        return None
    room = 0.1 * (kept[0] - kept[-1]) or 0.1 * reach
    low, high = kept[-1] - room, kept[0] + room
    return (low, high) if higher else (-high, -low)


def logarithmic_ticks(axis: Axis, write: Callable[[float], str]) -> None:
    """Of an axis with a logarithmic scale: plain numbers, more of them within one decade."""
    low, high = sorted(axis.get_view_interval())
    decades = math.log10(high / low)
    if decades < 0.6:
        axis.set_major_locator(MaxNLocator(nbins=5))
    else:
        digits = (1.0,) if decades > 3 else (1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
        axis.set_major_locator(LogLocator(subs=digits, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, place: write(value)))


def grid(axes: Axes, axis: Any) -> None:
    axes.grid(axis=axis)
    axes.tick_params(length=2.5, width=0.6)
