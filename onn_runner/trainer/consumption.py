"""What training takes from the machine: seconds, the peak of memory and, where counters can be read, energy."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

POWERCAP = Path("/sys/class/powercap")
"""Where Linux shows the energy counters of processors (RAPL)."""
OWN = Path("/proc/self")
LOOK_SECONDS = 20.0
"""Counters of processors begin anew after some minutes at full load: they are looked at so often."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Plain values, as they are kept in checkpoints and results; None where the machine does not tell."""

    seconds: float = 0.0
    peak_memory: int | None = None
    """Bytes: on a GPU the most that torch held there at a time; else the process's resident high-water."""
    energy: float | None = None
    """J, of the whole processors and of the GPU, whoever else used them too."""
    energy_of: str = ""
    """What `energy` counts: "cpu", "gpu" or "cpu+gpu"."""
    device: str = ""
    """"cpu", "cuda:0 (NVIDIA H200)"; several where a training went on elsewhere."""

    def then(self, later: Usage) -> Usage:
        """Both, one after the other; what one of them does not know is not known of both."""
        if not self.device:
            return later
        known = self.energy is not None and later.energy is not None and self.energy_of == later.energy_of
        peaks = [peak for peak in (self.peak_memory, later.peak_memory) if peak is not None]
        return Usage(
            seconds=self.seconds + later.seconds,
            peak_memory=max(peaks) if len(peaks) == 2 else None,
            energy=(self.energy or 0.0) + (later.energy or 0.0) if known else None,
            energy_of=later.energy_of if known else "",
            device=", ".join(dict.fromkeys([*self.device.split(", "), later.device])),
        )


class Counter(Protocol):
    """Joules since it was made; raises OSError, or another error of its library, where it cannot be read."""

    kind: str

    def joules(self) -> float: ...


class Consumption:
    """Measures from when it is made; `earlier` is what processes before took of the same training."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.earlier = device, Usage()
        self.began = self.looked = time.monotonic()
        reset_peak(device)
        self.counters: list[Counter] = [*processors(), *gpu(device)]

    def look(self) -> None:
        """Called often, does something rarely."""
        now = time.monotonic()
        if self.counters and now - self.looked > LOOK_SECONDS:
            self.looked = now
            self._joules()

    def usage(self) -> Usage:
        """Of all processes, until now."""
        joules = self._joules()
        return self.earlier.then(
            Usage(
                seconds=time.monotonic() - self.began,
                peak_memory=peak(self.device),
                energy=joules,
                energy_of="" if joules is None else "+".join(dict.fromkeys(one.kind for one in self.counters)),
                device=name_of(self.device),
            )
        )

    def _joules(self) -> float | None:
        if not self.counters:
            return None
        try:
            return sum(counter.joules() for counter in self.counters)
        except (OSError, ValueError, RuntimeError, Unreadable):
            # What cannot be read once has a gap, and is not known any more.
            self.counters = []
            return None


def name_of(device: torch.device) -> str:
    """ "cpu", "cuda:0 (NVIDIA H200)"."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def reset_peak(device: torch.device) -> None:
    """The peak counts anew from here on, where the system lets it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        (OWN / "clear_refs").write_text("5")


def peak(device: torch.device) -> int | None:
    """Bytes since `reset_peak`; of this process since it began where the system knows no resetting (macOS)."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        told = (OWN / "status").read_bytes()
        return int(told[told.index(b"VmHWM:") + 6 :].split(maxsplit=1)[0]) * 1024
    except (OSError, ValueError, IndexError):
        # No Linux.
        pass
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


@dataclass
class Processor:
    """One RAPL domain, whose counter (uJ) goes back to 0 after `span`."""

    path: Path
    span: int
    last: int
    total: int = 0
    kind: str = "cpu"

    def joules(self) -> float:
        now = int(self.path.read_text())
        self.total += (now - self.last) % self.span
        self.last = now
        return self.total / 1e6


def processors() -> list[Processor]:
    """The packages of all sockets, with the memory beside them where it has a counter of its own.

    Parts of a package (cores, graphics) and the whole machine (psys) would count the same energy twice. Often only the
    administrator may read the counters; where one of them cannot be read there are none.
    """
    found = []
    try:
        for domain in sorted(POWERCAP.glob("intel-rapl:*")):
            name = (domain / "name").read_text().strip()
            if name.startswith("package") or name == "dram":
                span = int((domain / "max_energy_range_uj").read_text()) + 1
                found.append(Processor(domain / "energy_uj", span, int((domain / "energy_uj").read_text())))
    except (OSError, ValueError):
        return []
    return found


class Unreadable(Exception):
    """A GPU's counter that is not there or not readable any more."""


class Gpu:
    """The counter of a GPU since its driver was loaded, through NVML."""

    kind = "gpu"

    def __init__(self, library: Any, handle: Any) -> None:
        self.library, self.handle = library, handle
        self.began = self._read()

    def joules(self) -> float:
        return (self._read() - self.began) / 1e3

    def _read(self) -> int:
        try:
            return int(self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle))
        except self.library.NVMLError as error:
            raise Unreadable(str(error)) from error


def gpu(device: torch.device) -> list[Gpu]:
    """None without NVML's Python package (nvidia-ml-py), and of a GPU that does not count."""
    if device.type != "cuda":
        return []
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        identity = str(torch.cuda.get_device_properties(device).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(identity if identity.startswith("GPU-") else f"GPU-{identity}")
        return [Gpu(pynvml, handle)]
    except (pynvml.NVMLError, Unreadable, AttributeError):
        return []
