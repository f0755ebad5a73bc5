"""The benchmark script: it runs, refuses to time wrong kernels, and measures what it says."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from onn_runner import compute

ROOT = Path(__file__).resolve().parent.parent
TABLES = ("sum", "parts", "tapwise", "self_onn", "quadratic", "network", "cost")
PLACES = ("sum-time", "sum-memory", *TABLES[1:])


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script as a module."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    yield importlib.import_module("benchmark")
    for name in [name for name in sys.modules if name.split(".")[0] in ("benchmark", "benchmarks")]:
        del sys.modules[name]


@pytest.fixture
def part(script: ModuleType) -> Callable[[str], ModuleType]:
    """A module beside the script."""
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def run(script: ModuleType, table: str, *words: object) -> int:
    asked = ["--tiny", "--no-memory", "--repetitions", "2", "--table", table, *map(str, words)]
    found: int = script.main(asked)
    return found


@pytest.mark.parametrize("table", TABLES)
def test_each_table_is_measured_and_written(table: str, script: ModuleType, tmp_path: Path) -> None:
    assert run(script, table, "--out", tmp_path) == 0
    stored = json.loads((tmp_path / "benchmark.json").read_text())
    written = (tmp_path / "benchmark.md").read_text()
    for made in stored:
        assert made["rows"]
        assert all(len(row) == len(made["header"]) for row in made["rows"])
        assert f"--tiny --table {table}" in made["origin"]
        assert made["title"] in written
        assert "| " + " | ".join(made["rows"][0]) + " |" in written


def test_ranges_are_rows(script: ModuleType, tmp_path: Path) -> None:
    assert run(script, "sum", "--range", 0.5, "--range", 3, "--out", tmp_path) == 0
    (made,) = json.loads((tmp_path / "benchmark.json").read_text())
    assert [row[2] for row in made["rows"]] == ["0.5", "3"] * 3


def wrong_output(y: Tensor, w: Tensor) -> Tensor:
    scale = torch.ones_like(y)
    scale[:, -1] += 1e-5
    return y * scale


def wrong_gradient(y: Tensor, w: Tensor) -> Tensor:
    return y + 1e-3 * (w - w.detach()).sum()


def not_a_number(y: Tensor, w: Tensor) -> Tensor:
    return y * torch.nan


@pytest.mark.parametrize("table", ["sum", "tapwise"])
@pytest.mark.parametrize("spoil", [wrong_output, wrong_gradient, not_a_number])
def test_a_wrong_kernel_is_not_timed(
    table: str,
    spoil: Callable[[Tensor, Tensor], Tensor],
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = compute.run

    def wrong(call: Any, x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
        return spoil(right(call, x, weight, *rest), weight)

    monkeypatch.setattr(compute, "run", wrong)
    assert run(script, table, "--out", tmp_path) == 1
    assert "misses its accuracy" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("table", "module", "layer"),
    [("self_onn", "polynomials", "SelfONNLayer"), ("network", "networks", "OperationalLayer")],
)
def test_a_wrong_layer_is_not_timed(
    table: str,
    module: str,
    layer: str,
    script: ModuleType,
    part: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = getattr(part(module), layer)
    right = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, x: right(self, x) * (1 + 1e-4))
    assert run(script, table) == 1


@pytest.mark.parametrize("mode", ["save_conv", "recompute"])
def test_a_wrong_mode_of_memory_is_not_timed(
    mode: str, script: ModuleType, part: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    products = part("products")
    right = products.layer_of

    def wrong(shape: Any, form: str, norm: str, memory: str, device: str) -> torch.nn.Module:
        layer: torch.nn.Module = right(shape, form, norm, memory, device)
        if memory == mode:
            layer.get_parameter("bias").data += 1e-4
        return layer

    monkeypatch.setattr(products, "layer_of", wrong)
    assert run(script, "quadratic") == 1


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peak resident memory is read from Linux's /proc"
)
def test_the_peak_is_that_of_the_step(part: Callable[[str], ModuleType]) -> None:
    measure, sums = part("measure"), part("sums")
    shape = sums.Shape(8, 16, 3, 40, 2)
    case = {"table": "sum", "shape": (8, 16, 3, 40, 2), "operators": "sine", "reach": 1.0, "method": "broadcast"}
    found = measure.peak(case, measure.Settings())
    # one tensor of all values of psi at least, and hardly more than the estimate that decides what fits
    assert 4 * shape.values / 2**20 < found < 1.5 * sums.TENSORS * 4 * shape.values / 2**20


def test_bytes_kept_count_each_storage_once(part: Callable[[str], ModuleType]) -> None:
    x, w = torch.rand(5, 7, requires_grad=True), torch.rand(7, requires_grad=True)
    # the product needs x, w and nothing else; the sine its input, of which the square needs the result's view
    assert part("measure").kept(lambda: (x * w).sum(), x, w) == 0
    assert part("measure").kept(lambda: (x * w).sin().sum(), x, w) == 4 * 35


def test_what_does_not_fit_is_left_out(part: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    sums = part("sums")
    monkeypatch.setattr(sums, "available", lambda device: 1000.0)
    settings = part("measure").Settings(ranges=(1.57,), repetitions=1, size="tiny", memory=False)
    (made,) = sums.tables(settings, lambda line: None)
    assert "left out" in made.notes[0]
    assert [row[made.header.index("× faster than FastONN's")] for row in made.rows] == ["–"] * 3


def test_tables_go_to_their_places_in_a_page(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: self_onn -->\nold\n<!-- end -->\nafter\n")
    assert run(script, "self_onn", "--update", page, "--out", tmp_path) == 0
    first = page.read_text()
    assert "old" not in first
    assert first.startswith("before\n<!-- table: self_onn -->\n**Self-ONN")
    assert first.endswith("\n<!-- end -->\nafter\n")
    # the same from what was written, and twice
    assert script.main(["--read", str(tmp_path / "benchmark.json"), "--update", str(page)]) == 0
    assert page.read_text() == first
    page.write_text("nothing\n")
    assert script.main(["--read", str(tmp_path / "benchmark.json"), "--update", str(page)]) == 0
    assert "has no place for the table self_onn" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("--device", "cuda:77"), ("--repetitions", "0"), ("--range", "-1"), ("--table", "x")]
)
def test_what_cannot_be_asked_is_refused(words: tuple[str, str], script: ModuleType) -> None:
    with pytest.raises(SystemExit) as stopped:
        script.main(list(words))
    assert stopped.value.code == 2


def test_the_page_has_a_place_for_every_table() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    for name in PLACES:
        assert f"<!-- table: {name} -->" in page
    assert page.count("<!-- end -->") == len(PLACES)
