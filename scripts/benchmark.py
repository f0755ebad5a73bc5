"""Check the kernels against float64, then time them and measure their memory; ratios are what counts.

    python scripts/benchmark.py                         all tables
    python scripts/benchmark.py --quick                 the smallest shape of each
    python scripts/benchmark.py --table sum --range 3   one of them, at one range of weights
    python scripts/benchmark.py --update docs/performance.md

Tables: sum (sum-pooled layers), parts (where their time goes), tapwise (maximum and median), self_onn, quadratic,
network (a training step), cost (how often the estimate of `auto` names the faster kernel).

Methods are timed in turn in every repetition of one process, so that a noisy machine disturbs all alike; a ratio is the
median over the repetitions, with the lowest and the highest. Peak memory is that of a process of its own, above what it
holds before the step. Nothing is timed where a kernel misses its accuracy: the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import torch
from benchmarks import costs, networks, parts, polynomials, pooled, products, report, sums
from benchmarks.gate import GateError
from benchmarks.measure import Settings, peak_of

from onn_runner.trainer.device import matmul_precision, threads

TABLES: Mapping[str, ModuleType] = {
    module.NAME: module for module in (sums, parts, pooled, polynomials, products, networks, costs)
}
REPETITIONS = 7


def options_of(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=TABLES, action="append", help="this one (may be given again); default: all")
    parser.add_argument("--quick", action="store_true", help="one shape of each table")
    parser.add_argument("--tiny", action="store_true", help="shapes that tell nothing, to try the script itself")
    parser.add_argument("--range", type=float, action="append", help="largest |K w|; default: 0.5, 1.57 and 3")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--threads", type=int, help="default: as many as torch takes")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--no-memory", action="store_true", help="times only")
    parser.add_argument("--out", type=Path, help="a folder for benchmark.json and benchmark.md")
    parser.add_argument("--update", type=Path, help="a page whose tables to replace")
    parser.add_argument("--read", type=Path, help="a benchmark.json to take the tables from, instead of measuring")
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.repetitions < 1 or (options.threads is not None and options.threads < 1):
        parser.error("--repetitions and --threads must be at least 1")
    if any(not 0 < reach < float("inf") for reach in options.range or ()):
        parser.error("--range must be a positive number")
    if options.device != "cpu" and not (options.device.startswith("cuda") and torch.cuda.is_available()):
        parser.error(f"--device {options.device} is not available here: use cpu")
    for option, path in (("--read", options.read), ("--update", options.update)):
        if path is not None and not path.is_file():
            parser.error(f"{option}: there is no file {path}")
    if options.out is not None and options.out.exists() and not options.out.is_dir():
        parser.error(f"--out: {options.out} is not a folder")
    if options.read is not None:
        try:
            report.read(options.read)
        except (ValueError, TypeError) as error:
            parser.error(f"--read: {options.read} is not what --out writes ({error})")
    return options


def command_of(options: argparse.Namespace) -> str:
    """The command that repeats the measurement."""
    words = ["python", "scripts/benchmark.py", *(f"--{name}" for name in ("quick", "tiny") if getattr(options, name))]
    for name in ("table", "range"):
        words += [word for value in getattr(options, name) or () for word in (f"--{name}", str(value))]
    words += ["--repetitions", str(options.repetitions)] if options.repetitions != REPETITIONS else []
    words += ["--threads", str(options.threads)] if options.threads else []
    words += ["--device", options.device] if options.device != "cpu" else []
    return shlex.join(words)


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr, flush=True)


def keep(tables: Sequence[report.Table], options: argparse.Namespace) -> None:
    """Write them where `--out` and `--update` say."""
    if options.out:
        report.write(tables, options.out)
    if options.update:
        for name in report.put_in(tables, options.update):
            say(f"{options.update} has no place for the table {name}")


def measure(options: argparse.Namespace) -> None:
    """All tables that were asked for, each with its origin; what is done is kept, whatever happens to the next.

    Raises GateError where a kernel misses its accuracy.
    """
    size = "tiny" if options.tiny else "quick" if options.quick else "full"
    ranges = tuple(options.range) if options.range else Settings.ranges if size == "full" else (1.57,)
    settings = Settings(options.device, ranges, options.repetitions, size, not options.no_memory)
    origin = f"{command_of(options)} ({report.environment(options.device)})"
    found: list[report.Table] = []
    for name in dict.fromkeys(options.table or TABLES):
        for table in TABLES[name].tables(settings, say):
            found.append(dataclasses.replace(table, origin=origin))
            print(found[-1].markdown(), flush=True)
        keep(found, options)


def memory_of(path: Path) -> None:
    """In a process of its own: print the peak of the step that `measure.peak` wrote down."""
    case = torch.load(path, weights_only=True)
    with threads(case["threads"]), matmul_precision("fp32"):
        warm_up, prepare = TABLES[case["table"]].memory_case(case)
        print(peak_of(warm_up, prepare, case))


def main(words: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    options = options_of(words)
    if options.memory_of:
        memory_of(options.memory_of)
        return 0
    if options.read:
        keep(report.read(options.read), options)
        return 0
    try:
        with threads(options.threads), matmul_precision("fp32"):
            measure(options)
    except GateError as error:
        say(f"{error}; nothing is timed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
