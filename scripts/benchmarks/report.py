"""Tables as Markdown and JSON, and their places in a page of the documentation."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import Spread


@dataclass(frozen=True)
class Table:
    """One table: its name, which is that of its place in a page, and cells as text; `data` holds the numbers."""

    name: str
    title: str
    header: Sequence[str]
    rows: list[list[str]]
    notes: Sequence[str] = ()
    data: list[dict[str, Any]] = field(default_factory=list)
    origin: str = ""
    """Command, date and machine."""

    def markdown(self) -> str:
        lines = [f"**{self.title}**", "", _line(self.header), _line(["---"] * len(self.header))]
        lines += [_line(row) for row in self.rows]
        lines += [f"\n{note}" for note in self.notes]
        if self.origin:
            lines.append(f"\n`{self.origin}`")
        return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def beside(spread: Spread | float | None, target: float | None, *, at_least: bool = True) -> list[str]:
    """A measured ratio, and its target: "≥ 42" or "≤ 1.3", with a sign where the median misses it."""
    if spread is None:
        return ["–", "–"]
    median = spread.median if isinstance(spread, Spread) else spread
    text = str(spread) if isinstance(spread, Spread) else f"{spread:.{2 if spread < 10 else 0}f}"
    if target is None:
        return [text, "–"]
    met = median >= target if at_least else median <= target
    return [text, f"{'≥' if at_least else '≤'} {target:g}{'' if met else ', missed'}"]


def megabytes(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def environment(device: str) -> str:
    """Date, version, threads, device, and how many processes want a core: above the number of cores ratios wobble."""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else _processor()
    threads = torch.get_num_threads()
    load = f", load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else ""
    return f"{today}, torch {torch.__version__}, {threads} thread{'s' * (threads != 1)}, {name}{load}"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", path.read_text()) if path.exists() else None
    return found[1].strip() if found else platform.machine()


def write(tables: Sequence[Table], folder: Path) -> None:
    """benchmark.json and benchmark.md."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmark.json").write_text(json.dumps([asdict(table) for table in tables], indent=2) + "\n")
    (folder / "benchmark.md").write_text("\n".join(table.markdown() for table in tables))


def read(path: Path) -> list[Table]:
    """The tables of a benchmark.json."""
    return [Table(**stored) for stored in json.loads(path.read_text())]


def put_in(tables: Sequence[Table], page: Path) -> list[str]:
    """Replace what stands between `<!-- table: NAME -->` and `<!-- end -->` in a page; the names that it has no place
    for."""
    text, homeless = page.read_text(encoding="utf-8"), []
    for table in tables:
        opening = f"<!-- table: {table.name} -->"
        before, found, rest = text.partition(opening)
        _, closed, after = rest.partition("<!-- end -->")
        if not found or not closed:
            homeless.append(table.name)
            continue
        text = f"{before}{opening}\n{table.markdown()}{closed}{after}"
    page.write_text(text, encoding="utf-8")
    return homeless
