"""What training takes: peaks that count anew, counters that wrap around, sums over processes, null for no answer."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_fold
import torch
from tiny_fold import make_job

from onn_runner.errors import Interrupted
from onn_runner.trainer import QuietReporter, StopRequest, checkpoint, consumption, train_fold
from onn_runner.trainer.consumption import Consumption, Gpu, Usage, peak, processors, reset_peak

CPU = torch.device("cpu")


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages, one with memory of its own; cores and the whole machine, which would count twice."""
    domains = {"0": "package-0", "0:0": "core", "0:1": "dram", "1": "package-1", "2": "psys"}
    for number, name in domains.items():
        folder = tmp_path / f"intel-rapl:{number}"
        folder.mkdir()
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text("999999\n")
        (folder / "energy_uj").write_text("900000\n")
    monkeypatch.setattr(consumption, "POWERCAP", tmp_path)
    return tmp_path


def count(powercap: Path, number: str, microjoules: int) -> None:
    (powercap / f"intel-rapl:{number}" / "energy_uj").write_text(f"{microjoules}\n")


def test_energy_of_packages_and_their_memory_with_wrap_around(powercap: Path) -> None:
    assert [counter.path.parent.name for counter in processors()] == ["intel-rapl:0", "intel-rapl:0:1", "intel-rapl:1"]
    measured = Consumption(CPU)
    assert measured.usage().energy == 0
    count(powercap, "0", 950_000)
    count(powercap, "0:0", 999_000)
    count(powercap, "2", 999_000)
    # Beyond its end: 100,000 to the end and 50,000 anew.
    count(powercap, "0:1", 50_000)
    usage = measured.usage()
    assert usage.energy == pytest.approx(0.05 + 0.15)
    assert (usage.energy_of, usage.device) == ("cpu", "cpu")
    count(powercap, "0:1", 49_999)
    assert measured.usage().energy == pytest.approx(0.2 + 0.999_999)


def test_counters_are_looked_at_between_checkpoints(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = Consumption(CPU)
    count(powercap, "1", 100_000)
    measured.look()
    count(powercap, "1", 950_000)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    measured.look()
    count(powercap, "1", 0)
    # Seen at 900, 950 and, once round, 1000 mJ.
    assert measured.usage().energy == pytest.approx(0.1)
    assert measured.usage().seconds == pytest.approx(60, abs=5)


def test_counters_that_cannot_be_read_are_not_known(powercap: Path) -> None:
    measured = Consumption(CPU)
    (powercap / "intel-rapl:1" / "energy_uj").unlink()
    assert processors() == []
    usage = measured.usage()
    assert (usage.energy, usage.energy_of) == (None, "")
    (powercap / "intel-rapl:1" / "energy_uj").write_text("1")
    assert measured.usage().energy is None, "what happened in between is not known"
    (powercap / "intel-rapl:1" / "energy_uj").write_text("nonsense")
    assert processors() == []


def test_a_gpu_counts_through_nvml() -> None:
    class Failure(Exception):
        pass

    def read(handle: str) -> int:
        if handle == "lost":
            raise Failure("GPU is lost")
        return readings.pop(0)

    readings = [5_000, 7_500]
    library = SimpleNamespace(nvmlDeviceGetTotalEnergyConsumption=read, NVMLError=Failure)
    counter = Gpu(library, "GPU-1")
    measured = Consumption(CPU)
    measured.counters = [counter]
    usage = measured.usage()
    assert (usage.energy, usage.energy_of) == (2.5, "gpu")
    counter.handle = "lost"
    assert measured.usage().energy is None


def test_without_the_library_a_gpu_has_no_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert consumption.gpu(torch.device("cuda:0")) == []
    assert consumption.gpu(CPU) == []


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="this system cannot reset the high-water")
def test_the_peak_is_that_since_it_was_reset() -> None:
    size = 64 * 2**20
    torch.ones(size, dtype=torch.uint8)
    high = peak(CPU)
    reset_peak(CPU)
    low = peak(CPU)
    assert high is not None
    assert low is not None
    torch.ones(size, dtype=torch.uint8)
    after = peak(CPU)
    assert after is not None
    # The allocator's own pages come on top.
    assert size * 0.9 < after - low < size * 1.5
    assert high >= low


def test_without_proc_the_process_itself_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumption, "OWN", tmp_path / "nowhere")
    reset_peak(CPU)
    most = peak(CPU)
    assert most is not None
    assert 10 * 2**20 < most < 2**40
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak(CPU) is None


KNOWN = Usage(seconds=2.0, peak_memory=10, energy=3.0, energy_of="cpu", device="cpu")


@pytest.mark.parametrize(
    ("earlier", "later", "both"),
    [
        (Usage(), KNOWN, KNOWN),
        (KNOWN, KNOWN, Usage(seconds=4.0, peak_memory=10, energy=6.0, energy_of="cpu", device="cpu")),
        (
            KNOWN,
            Usage(seconds=1.0, peak_memory=7, device="cuda:0 (A, B)"),
            Usage(seconds=3.0, peak_memory=10, device="cpu, cuda:0 (A, B)"),
        ),
        (
            KNOWN,
            Usage(seconds=1.0, energy=1.0, energy_of="cpu+gpu", device="cpu"),
            Usage(seconds=3.0, device="cpu"),
        ),
    ],
)
def test_processes_add_up(earlier: Usage, later: Usage, both: Usage) -> None:
    assert earlier.then(later) == both


def test_a_start_knows_what_all_its_processes_took(tmp_path: Path, powercap: Path) -> None:
    class Stopping(QuietReporter):
        def epoch_done(self, *words: object, **kinds: object) -> None:
            count(powercap, "1", 950_000)
            if stops:
                stops.pop().reason = "a test"

    stop = StopRequest()
    stops = [stop]
    with pytest.raises(Interrupted):
        train_fold(make_job(tmp_path / "fold"), reporter=Stopping(), stop=stop)
    state = checkpoint.load(tmp_path / "fold" / "last.pt")
    assert state.used.seconds > 0
    assert state.used.energy == pytest.approx(0.05)
    count(powercap, "1", 100_000)
    (start,) = train_fold(make_job(tmp_path / "fold"), reporter=Stopping(), stop=StopRequest(), resume=True).starts
    assert start.seconds is not None
    assert start.seconds > state.used.seconds
    assert start.energy == pytest.approx(0.05 + 0.85)
    assert start.peak_memory is not None
    assert start.seconds_per_epoch == pytest.approx(start.seconds / 3)
    written = json.loads((tmp_path / "fold" / "status.json").read_text())["starts"][0]
    assert (written["seconds"], written["energy_of"], written["device"]) == (start.seconds, "cpu", "cpu")


def test_a_checkpoint_of_before_knows_its_seconds(tmp_path: Path) -> None:
    train_fold(make_job(tmp_path / "fold", epochs=1), reporter=QuietReporter(), stop=StopRequest())
    path = tmp_path / "fold" / "last.pt"
    plain = torch.load(path, weights_only=True)
    del plain["usage"]
    torch.save({**plain, "format": 2, "seconds": 100.0}, path)
    (start,) = train_fold(
        make_job(tmp_path / "fold", epochs=2), reporter=QuietReporter(), stop=StopRequest(), resume=True
    ).starts
    assert start.seconds is not None
    assert start.seconds > 100
    assert (start.peak_memory, start.energy, start.device) == (None, None, "unknown, cpu")


def test_measuring_costs_next_to_nothing() -> None:
    measured = Consumption(CPU)
    began = time.perf_counter()
    for _ in range(100):
        measured.look()
        measured.usage()
    # A save writes files, which takes milliseconds; this is a tenth of one.
    assert (time.perf_counter() - began) / 100 < 5e-3
    assert tiny_fold.FOLD
