"""What a sweep's jobs in other processes come to, told as it happens: a line when one begins and one when it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from onn_runner.cli import job
from onn_runner.plain import printable

ENDED = (job.FINISHED, job.FAILED, job.PRUNED)
PAUSE = 1.0
"""Seconds between two looks at the folders."""


@contextmanager
def watched(where: Path, names: Sequence[str], *, total: int) -> Iterator[None]:
    """Tell of the jobs `names` below `where` until the end of the block; `total`: the sweep's jobs."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(where, names, total, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(where: Path, names: Sequence[str], total: int, ended: threading.Event) -> None:
    known: dict[str, str] = {}
    for name in names:
        record = job.read(where / name)
        # What an earlier start left of it is not news.
        known[name] = "" if record is None else f"{record.status} {record.started}"
    left = list(names)
    while True:
        last = ended.wait(PAUSE)
        for name in list(left):
            record = job.read(where / name)
            state = "" if record is None else f"{record.status} {record.started}"
            if record is not None and state != known[name]:
                known[name] = state
                print(line(record, where, total), flush=True)
                if record.status in ENDED:
                    # Not looked at again: there may be thousands, on a disk far away.
                    left.remove(name)
        if last:
            return


def line(record: job.Record, where: Path, total: int) -> str:
    """`model-onn_seed-0 finished: 29.31 (3 of 12 jobs have ended)`."""
    name = record.folder.name
    if record.status == job.RUNNING:
        return f"onn-run: {name} runs on {record.host or 'a machine without a name'} (process {record.pid})"
    done = sum(other.status in ENDED for other in job.records(where))
    what = "" if record.score is None else f": {record.score:.4g}"
    reason = f" ({printable(record.error.splitlines()[0])})" if record.error else ""
    return f"onn-run: {name} {record.status}{what}{reason}, {done} of {total} jobs have ended"
