"""Where and how exactly to compute: device by name, precision by name, compilation; refused with the reason."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.seeding import Part, derive

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def available_devices() -> list[str]:
    """Every name that `choose_device` takes on this machine, apart from auto."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ["cpu", *(["cuda"] if count else []), *(f"cuda:{index}" for index in range(count))]


def choose_device(name: str) -> torch.device:
    """`auto` is the first GPU, or else the CPU. Raises ConfigError for a device that is not there."""
    available = available_devices()
    if name == "auto":
        return torch.device("cuda:0" if "cuda" in available else "cpu")
    if name not in available:
        raise ConfigError(f"trainer.device={name} is not available here. Options: auto, {', '.join(available)}.")
    return torch.device("cuda:0" if name == "cuda" else name)


def check_precision(precision: str, device: torch.device) -> None:
    """Raises ConfigError where the device cannot compute in this precision."""
    reason = None
    if device.type == "cpu" and precision in ("tf32", "fp16"):
        reason = "is a number format of GPUs, and the device is cpu: choose fp32 or bf16"
    elif device.type == "cuda" and precision == "tf32" and torch.cuda.get_device_capability(device) < (8, 0):
        reason = f"needs compute capability 8.0, {torch.cuda.get_device_name(device)} is older: choose fp32 or fp16"
    elif device.type == "cuda" and precision == "bf16" and not torch.cuda.is_bf16_supported():
        reason = f"is not supported by {torch.cuda.get_device_name(device)}: choose fp32 or fp16"
    if reason is not None:
        raise ConfigError(f"trainer.precision={precision} {reason}.")


def check_compile(device: torch.device) -> None:
    """Raises ConfigError where torch.compile lacks its compiler."""
    if device.type == "cpu" and not any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl")):
        raise ConfigError("trainer.compile=true needs a C++ compiler on the CPU (apt install g++): or set it to false.")


class Autocast(nn.Module):
    """Runs a network in half precision where that is safe, and returns float32."""

    def __init__(self, network: nn.Module, device: torch.device, precision: str) -> None:
        super().__init__()
        self.network, self.device_type, self.dtype = network, device.type, HALF[precision]

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(self.device_type, dtype=self.dtype):
            output = self.network(x)
        return output.float()


@contextlib.contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """fp32 means fp32: convolutions on GPUs are tf32 by default, here only where asked for."""
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    for backend in backends:
        backend.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        yield
    finally:
        for backend, value in zip(backends, before, strict=True):
            backend.fp32_precision = value


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Torch's CPU threads for a block; they can change the last bit of a sum."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


MACS_PER_THREAD = 200_000_000


def sensible_threads(macs: int) -> int:
    """How many CPU threads a step of so many multiply-accumulates (forward) keeps busy: a function of the work alone.

    Small steps gain little from a second thread, and where other processes compute too, threads that wait for each
    other make them a hundred times slower. OMP_NUM_THREADS is obeyed where it is set.
    """
    most = torch.get_num_threads()
    if "OMP_NUM_THREADS" in os.environ:
        return most
    return max(1, min(most, macs // MACS_PER_THREAD))


def busy(count: int) -> str | None:
    """A warning where `count` threads would wait for a core that others use; None where there is no such danger."""
    if count < 2 or not hasattr(os, "getloadavg"):
        return None
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load + count <= cores + 1.5:
        return None
    return (
        f"other programs keep {load:.1f} of {cores} cores busy: {count} threads that wait for each other can be many "
        "times slower than one; trainer.threads=1 helps (and can change the last digits of numbers)"
    )


@dataclass(frozen=True)
class Randomness:
    """Keys torch's global generators, so that dropout does not depend on what was drawn before."""

    device: torch.device

    def key(self, *parts: Part) -> None:
        seed = derive(*parts)
        # torch.manual_seed also visits devices that are not in use, which costs more than a small layer.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)

    def forked(self) -> AbstractContextManager[None]:
        """Leave the generators as they were found."""
        return torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else [])
