"""Kill sweeps with SIGKILL at random moments, give the same command again, and compare their jobs' numbers."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WHOM = ("command", "worker", "all")
LAUNCHERS = {"local": None, "joblib": "joblib", "submitit_local": "submitit", "ray": "ray"}
"""Option of `sweep` -> the package it needs."""
RATES = ("0.01", "0.02")
PLANTED = "5"
"""The learning rate at which the job fails."""
SWEEP = (
    *("-m", "--config-dir=mine", "--module=planted", "optimizer=planted", "model=onn", "ops=sine", "data=denoise"),
    *("data.photographs=[camera,coins,moon,page]", "data.patches=8", "data.patch=24", "data.max_side=96"),
    *("network.channels=[4]", "partition.folds=2", "trainer.epochs=4", "trainer.starts=2", "trainer.batch_size=8"),
    *("trainer.pictures=false", f"optimizer.lr={','.join([*RATES, PLANTED])}"),
)
MODULE = '''"""Adam that fails where its learning rate is absurd, as a mistake of a user's would."""

import torch


class Planted(torch.optim.Adam):
    def step(self, closure=None):
        if self.defaults["lr"] > 1:
            raise ArithmeticError("planted")
        return super().step(closure)
'''
OPTION = "# A job of it fails\n_target_: planted.Planted\nlr: 0.01\n"
MARK = "ONN_RUNNER_SOAK"
"""In the environment of every process of one sweep, by which those are found whose parent was killed."""
LONGEST = 900.0
"""Seconds after which a sweep that is left alone counts as stuck."""


@dataclass
class Soak:
    """Sweeps of one launcher that are killed and begun again until there were `kills` kills.

    Killed are the command's own process, one of its others (a worker, a job, the scheduler between them), or all.
    """

    where: Path
    launcher: str
    kills: int
    longest: float
    """Seconds until the next kill, at most."""
    chance: random.Random
    program: tuple[str, ...]
    done: Counter[str] = field(default_factory=Counter)
    sweeps: int = 0
    commands: int = 0
    life: float = 0.0
    """Seconds of the last sweep's last command that had something to do."""
    wrong: list[str] = field(default_factory=list)

    def run(self, compare: Callable[[Path], list[str]]) -> None:
        """`compare`: what differs in a sweep's folder from an undisturbed one's."""
        while self.done.total() < self.kills or not self.sweeps:
            self.sweeps += 1
            name = f"{self.launcher}-{self.sweeps}"
            (self.where / f"{name}.last").unlink(missing_ok=True)
            with swept_up(name):
                found = [*self._sweep(name), *compare(self.where / "multirun" / name)]
            self.wrong += [f"{name}: {text}" for text in found]

    def __str__(self) -> str:
        told = ", ".join(f"{count} {whom}" for whom, count in sorted(self.done.items())) or "none"
        verdict = "identical" if not self.wrong else "DIFFERENT"
        return (
            f"{self.launcher}: {self.done.total()} kills ({told}) in {self.sweeps} sweeps of {len(RATES) + 1} jobs, "
            f"{self.commands} commands: {verdict}"
        )

    def _sweep(self, name: str) -> list[str]:
        """Until it has ended; what was wrong with how it did."""
        words = (*SWEEP, f"sweep={self.launcher}", f"name={name}")
        process, began = self.begin(name, *words), time.monotonic()
        while True:
            left = self.kills - self.done.total()
            try:
                process.wait(self.chance.uniform(0.2, self.longest) if left else LONGEST)
                break
            except subprocess.TimeoutExpired:
                if not left:
                    return [f"not finished after {LONGEST:.0f} s; see {name}.log"]
            whom = kill(process, name, self.chance.choice(WHOM), self.chance)
            self.done[whom] += 1
            print(f"  {name}: kill {self.done.total()} of {self.kills}: {whom}", flush=True)
            if whom != "worker":
                process.wait()
                process, began = self.begin(name, *words), time.monotonic()
        self.life = time.monotonic() - began
        return self._ended(name, words)

    def _ended(self, name: str, words: Sequence[str]) -> list[str]:
        """What the command tells once nothing is left to do: the planted failure, once, and exit code 1.

        Jobs that lost their process too often have failed, and are tried again on demand.
        """
        records = (self.where / "multirun" / name).glob("*/job.json")
        if any("vanished" in str(read(path).get("error")) for path in records):
            self.begin(name, *words, "sweep.retry_failed=true").wait(LONGEST)
        process = self.begin(name, *words, last=True)
        code = process.wait(LONGEST)
        output = (self.where / f"{name}.last").read_text(errors="replace")
        failure = f"onn-run: optimizer.lr-{PLANTED} failed: ArithmeticError: planted"
        told = output.count(failure)
        wrong = [] if code == 1 else [f"exit code {code} in place of 1"]
        wrong += [] if told == 1 else [f"the planted failure is told {told} times"]
        wrong += [] if output.count(" failed: ") == told else ["a job failed that should not"]
        return wrong + (["a traceback on the screen"] if "Traceback" in output else [])

    def begin(self, name: str, *words: str, last: bool = False) -> subprocess.Popen[bytes]:
        """One onn-run with a mark; what it says is in <name>.log, of the `last` in <name>.last."""
        self.commands += 1
        environment = {**os.environ, "OMP_NUM_THREADS": "1", MARK: name}
        with (self.where / f"{name}.{'last' if last else 'log'}").open("ab") as log:
            return subprocess.Popen([*self.program, *words], cwd=self.where, env=environment, stdout=log, stderr=log)


def installed(launcher: str) -> bool:
    """Whether its launcher and what that needs are here."""
    package = LAUNCHERS[launcher]
    needed = () if package is None else (package, f"hydra_plugins.hydra_{package}_launcher")
    try:
        return all(importlib.util.find_spec(name) is not None for name in needed)
    except ModuleNotFoundError:
        return False


def plant(where: Path) -> None:
    """The user's module and option of which one job fails."""
    (where / "mine" / "optimizer").mkdir(parents=True)
    (where / "planted.py").write_text(MODULE)
    (where / "mine" / "optimizer" / "planted.yaml").write_text(OPTION)


def read(record: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads(record.read_text())
    return content


def processes(mark: str) -> list[int]:
    """Ids of the processes that have it in their environment; only Linux tells."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def kill(process: subprocess.Popen[bytes], mark: str, whom: str, chance: random.Random) -> str:
    """SIGKILL to the command's process, to one of its others, or to all; says to whom."""
    others = [number for number in processes(mark) if number != process.pid]
    if whom == "worker" and not others:
        whom = "command"
    victims = [chance.choice(others)] if whom == "worker" else [process.pid, *(others if whom == "all" else [])]
    for number in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return whom


@contextlib.contextmanager
def swept_up(mark: str) -> Iterator[None]:
    """Leave no process behind."""
    try:
        yield
    finally:
        for number in processes(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
