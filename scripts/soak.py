"""Kill runs and sweeps with SIGKILL at random moments, go on each time, and compare with undisturbed ones.

    python scripts/soak.py --kills 50 --sweep-kills 10 --launchers local,joblib,submitit_local,ray --seed 0

A run is resumed; of a sweep the same command is given again. A sweep has one job that fails, which must be told once.
Exit code 0 when every number, table, weight and TensorBoard point is identical to the last bit, 1 when one is not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import soak_sweeps
import torch

RUN = (
    *("model=onn", "ops=sine,exp", "data=denoise", "data.photographs=[camera,coins,moon,page]", "data.patches=12"),
    *("data.patch=32", "data.max_side=128", "network.channels=[6]", "partition.folds=2"),
    *("trainer.epochs=6", "trainer.starts=2", "trainer.batch_size=8"),
)
COSTS = ("seconds_per_epoch", "seconds", "peak_memory", "energy")
"""What a start took of the machine, no two of which are alike."""
PROGRAM = (sys.executable, "-c", "import sys; from onn_runner.cli.run import main; sys.exit(main())")


def begin(where: Path, *words: str) -> subprocess.Popen[str]:
    """One onn-run in a process of its own, on one thread, so that its numbers can be repeated."""
    return subprocess.Popen(
        [*PROGRAM, *words],
        cwd=where,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    output = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"a run ended with exit code {process.returncode}:\n{output}")


def numbers(run: Path) -> dict[str, object]:
    """Results without the times, the sorted rows of the tables, and the best weights of every fold."""
    results = json.loads((run / "results.json").read_text())
    for key in ("seconds", "cost", "name", "warnings"):
        del results[key]
    for fold in results["folds"]:
        for start in fold["starts"]:
            for key in COSTS:
                del start[key]
    tables = {name: sorted((run / name).read_text().splitlines()) for name in ("metrics.csv", "test_items.csv")}
    weights = {
        str(path.parent.name): {
            name: value.tolist() if isinstance(value, torch.Tensor) else repr(value)
            for name, value in torch.load(path, weights_only=True)["network"].items()
        }
        for path in sorted(run.glob("fold_*/best.pt"))
    }
    points = {str(path.relative_to(run)): board(path) for path in sorted(run.glob("fold_*/**/"))}
    return {"results": results, **tables, "weights": weights, "points": points}


def board(folder: Path) -> dict[str, object]:
    """The scalars that TensorBoard shows of a folder: tag -> (step, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1})
    events.Reload()
    return {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def disturbed(where: Path, name: str, most: int, longest: float, chance: random.Random) -> tuple[Path, int]:
    """A run that is killed at random moments until it ends, at most so often, and resumed; and how often it was."""
    process, kills = begin(where, *RUN, f"name={name}"), 0
    while kills < most:
        try:
            process.wait(timeout=chance.uniform(0.2, longest))
            break
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        kills += 1
        found = sorted(where.glob(f"outputs/{name}/*/run.json"))
        words = (f"resume={found[-1].parent}",) if found else (*RUN, f"name={name}")
        process = begin(where, *words)
    finish(process)
    return sorted(where.glob(f"outputs/{name}/*/results.json"))[-1].parent, kills


def run_soak(where: Path, kills: int, chance: random.Random) -> list[str]:
    """What differs between runs that were killed, `kills` times together, and one that was not."""
    began = time.monotonic()
    finish(begin(where, *RUN, "name=whole"))
    life = time.monotonic() - began
    print(f"undisturbed run: {life:.1f} s", flush=True)
    (whole,) = (path.parent for path in where.glob("outputs/whole/*/results.json"))
    wrong, done, runs = [], 0, 0
    while done < kills:
        runs += 1
        started = time.monotonic()
        killed, hits = disturbed(where, f"killed-{runs}", kills - done, life, chance)
        done += hits
        if not hits:
            # The machine has become quicker: moments beyond a run's end are none.
            life = min(life, time.monotonic() - started)
        wrong += [f"run {runs}: {text}" for text in differences(whole, killed)]
        print(f"run {runs}: killed {hits} times, {done} of {kills} in all", flush=True)
    verdict = "DIFFERENT" if wrong else "identical"
    print(f"runs: {kills} kills in {runs} runs: {verdict}, {time.monotonic() - began:.0f} s", flush=True)
    return wrong


def sweep_soak(where: Path, launchers: Sequence[str], kills: int, chance: random.Random) -> list[str]:
    """What differs between sweeps that were killed and one that was not."""
    soak_sweeps.plant(where)
    undisturbed = soak_sweeps.Soak(where, "local", 0, 0.0, chance, PROGRAM)
    undisturbed.run(lambda folder: [])
    print(f"undisturbed sweep: {undisturbed.life:.1f} s", flush=True)
    whole = where / "multirun" / "whole"
    (where / "multirun" / "local-1").rename(whole)
    wrong = list(undisturbed.wrong)
    for launcher in launchers:
        if not soak_sweeps.installed(launcher):
            print(f"{launcher}: left out, it is not installed")
            continue
        began = time.monotonic()
        soak = soak_sweeps.Soak(where, launcher, kills, undisturbed.life, chance, PROGRAM)
        soak.run(partial(compare_jobs, whole))
        print(f"{soak}, {time.monotonic() - began:.0f} s", flush=True)
        wrong += soak.wrong
    return wrong


def compare_jobs(whole: Path, sweep: Path) -> list[str]:
    """What differs between the jobs of two sweeps, but for those that failed."""
    wrong = []
    for rate in soak_sweeps.RATES:
        job = f"optimizer.lr-{rate}"
        wrong += [f"{job}: {text}" for text in differences(whole / job, sweep / job)]
    return wrong


def differences(whole: Path, killed: Path) -> list[str]:
    try:
        expected, found = numbers(whole), numbers(killed)
    except (OSError, LookupError, ValueError) as error:
        return [f"cannot be compared ({type(error).__name__}: {error})"]
    return [key for key in expected if expected[key] != found[key]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="of a run; 0: none")
    parser.add_argument("--sweep-kills", type=int, default=10, help="of the sweeps of each launcher; 0: none")
    parser.add_argument("--launchers", default=",".join(soak_sweeps.LAUNCHERS), help="options of sweep, with commas")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    launchers = arguments.launchers.split(",")
    if unknown := set(launchers) - set(soak_sweeps.LAUNCHERS):
        parser.error(f"--launchers: no such launcher: {', '.join(sorted(unknown))}")
    # Ended from outside, it sweeps up behind itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chance, began = random.Random(arguments.seed), time.monotonic()
    wrong = []
    folder = Path(tempfile.mkdtemp(prefix="onn-soak-"))
    if arguments.kills:
        wrong += run_soak(folder, arguments.kills, chance)
    if arguments.sweep_kills:
        wrong += sweep_soak(folder, launchers, arguments.sweep_kills, chance)
    for text in wrong:
        print(f"DIFFERENT: {text}")
    if wrong:
        print(f"what was computed is kept in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{time.monotonic() - began:.0f} s, seed {arguments.seed}: {'DIFFERENT' if wrong else 'all identical'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
