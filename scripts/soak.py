"""Kill a run with SIGKILL at random moments, resume it each time, and compare its numbers with an undisturbed run's.

    python scripts/soak.py --kills 50 --seed 0

Exit code 0 when every number, table and weight is identical to the last bit, 1 when one is not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

RUN = (
    *("model=onn", "ops=sine,exp", "data=denoise", "data.photographs=[camera,coins,moon,page]", "data.patches=12"),
    *("data.patch=32", "data.max_side=128", "network.channels=[6]", "partition.folds=2"),
    *("trainer.epochs=6", "trainer.starts=2", "trainer.batch_size=8"),
)
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
    results.pop("seconds"), results.pop("name"), results.pop("warnings")
    for fold in results["folds"]:
        for start in fold["starts"]:
            del start["seconds_per_epoch"]
    tables = {name: sorted((run / name).read_text().splitlines()) for name in ("metrics.csv", "test_items.csv")}
    weights = {
        str(path.parent.name): {
            name: value.tolist() if isinstance(value, torch.Tensor) else repr(value)
            for name, value in torch.load(path, weights_only=True)["network"].items()
        }
        for path in sorted(run.glob("fold_*/best.pt"))
    }
    return {"results": results, **tables, "weights": weights}


def disturbed(where: Path, kills: int, longest: float, chance: random.Random) -> Path:
    """A run that is killed `kills` times, at moments that are spread over its whole life, and then finished."""
    process = begin(where, *RUN, "name=killed")
    done = 0
    while done < kills:
        time.sleep(chance.uniform(0.2, longest))
        finished_early = process.poll() is not None
        process.kill()
        process.communicate()
        done += 1
        found = sorted(where.glob("outputs/killed/*/run.json"))
        print(f"kill {done} of {kills}{' (it had just ended)' if finished_early else ''}", flush=True)
        process = begin(where, f"resume={found[-1].parent}") if found else begin(where, *RUN, "name=killed")
    finish(process)
    return sorted(where.glob("outputs/killed/*/results.json"))[-1].parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onn-soak-") as folder:
        where = Path(folder)
        began = time.monotonic()
        finish(begin(where, *RUN, "name=whole"))
        life = time.monotonic() - began
        print(f"undisturbed: {life:.1f} s", flush=True)
        killed = disturbed(where, arguments.kills, life, random.Random(arguments.seed))
        (whole,) = (path.parent for path in where.glob("outputs/whole/*/results.json"))
        expected, found = numbers(whole), numbers(killed)
        different = [key for key in expected if expected[key] != found[key]]
        for key in different:
            print(f"DIFFERENT: {key}")
        verdict = "identical" if not different else "DIFFERENT"
        print(f"{arguments.kills} kills, {time.monotonic() - began:.0f} s: {verdict}")
        return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
