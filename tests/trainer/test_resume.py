"""Processes that are really killed, at every moment that matters; what goes on from them ends with the same bits."""

import json
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_fold
import torch
from deadly import die_in_file, die_in_step
from tiny_fold import make_job
from torch import nn

from onn_runner.errors import Interrupted
from onn_runner.task.restore import Restore
from onn_runner.trainer import PlainReporter, QuietReporter, StopRequest, checkpoint, train_fold

SCRIPT = Path(tiny_fold.__file__)
CHANGES: dict[str, Any] = {"epochs": 2, "keep_best": ["val/mae"]}


@pytest.fixture(scope="module")
def processes() -> Any:
    """Forks of one process that has torch and has done nothing with it: a kill costs a fraction of a second."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["deadly"])
    with pytest.MonkeyPatch.context() as patch:
        # The server of Python 3.11 and 3.12 does not take over sys.path.
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        multiprocessing.forkserver.ensure_running()
    return context


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def killed(processes: Any, target: Any, *arguments: Any) -> bool:
    process = processes.Process(target=target, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def train(folder: Path, **changes: Any) -> None:
    train_fold(make_job(folder, **changes), reporter=QuietReporter(), stop=StopRequest(), resume=True)


def numbers(folder: Path) -> dict[str, Any]:
    """All that a fold leaves, without what time alone decides."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".csv":
            found[name] = path.read_bytes()
        elif path.name == "status.json":
            status = json.loads(path.read_text())
            for start in status["starts"]:
                for key in ("seconds_per_epoch", "seconds", "peak_memory", "energy"):
                    del start[key]
            found[name] = status
        elif path.suffix == ".pt" and path.name != "last.previous.pt":
            state = checkpoint.load(path)
            found[name] = (
                state.epoch,
                state.step,
                state.best,
                state.history,
                bits(state.network),
                bits(state.optimizers),
                bits(state.average),
                bits(state.best_state),
                bits(state.candidates),
                (state.origin, state.averaged),
            )
        elif path.name != "last.previous.pt" and path.is_file():
            found[name] = None
    return found


def bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    return [bits(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module", params=[1, 2], ids=["one start", "two starts"])
def reference(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    """The changes of a job, and the numbers of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("reference")
    changes = {**CHANGES, "starts": request.param}
    train(folder, **changes)
    return changes, numbers(folder)


def test_killed_in_any_step(processes: Any, reference: tuple[dict, dict], tmp_path: Path) -> None:
    changes, expected = reference
    for step in range(4 * CHANGES["epochs"] * changes["starts"]):
        folder = tmp_path / str(step)
        assert killed(processes, die_in_step, folder, step, changes)
        train(folder, **changes)
        assert numbers(folder) == expected, f"killed in step {step}"


def test_killed_at_any_file(processes: Any, reference: tuple[dict, dict], tmp_path: Path) -> None:
    changes, expected = reference
    call = 0
    while killed(processes, die_in_file, tmp_path / str(call), call, changes):
        train(tmp_path / str(call), **changes)
        assert numbers(tmp_path / str(call)) == expected, f"killed before renaming {call}"
        # Every other one where there are twice as many.
        call += changes["starts"]
    # Every epoch has last (two renamings after the first), best and another best; a fold has tables and its status.
    assert call > 4 * CHANGES["epochs"] * changes["starts"]


def test_killed_at_a_file_with_every_kind_of_mean(processes: Any, tmp_path: Path) -> None:
    """What is kept beside the weights: their running mean, candidates for a mean, the state to go back to."""
    changes = {**CHANGES, "ema": 0.8, "average": 2, "restore_best_on_rise": True, "accumulate": 3}
    train(tmp_path / "whole", **changes)
    expected = numbers(tmp_path / "whole")
    call = 0
    while killed(processes, die_in_file, tmp_path / str(call), call, changes):
        train(tmp_path / str(call), **changes)
        assert numbers(tmp_path / str(call)) == expected, f"killed before renaming {call}"
        call += 2
    assert call > 8


def test_killed_again_and_again(processes: Any, reference: tuple[dict, dict], tmp_path: Path) -> None:
    changes, expected = reference
    for step in (1, 5, 4, 6, 2, 5, 3, 4):
        killed(processes, die_in_step, tmp_path, step, changes)
    train(tmp_path, **changes)
    assert numbers(tmp_path) == expected


def test_stopped_in_any_step_goes_on_from_there(reference: tuple[dict, dict], tmp_path: Path) -> None:
    changes, expected = reference

    class Stopping(QuietReporter):
        def __init__(self, stop: StopRequest) -> None:
            super().__init__()
            self.stop = stop

        def step_done(self, step: int, steps: int) -> None:
            self.stop.request("Ctrl-C")

    interruptions = 0
    while True:
        stop = StopRequest()
        try:
            train_fold(make_job(tmp_path, **changes), reporter=Stopping(stop), stop=stop, resume=True)
            break
        except Interrupted:
            interruptions += 1
            status = json.loads((tmp_path / "status.json").read_text())
            assert status["status"] == "interrupted"
    # One step a time: the state in the middle of an epoch is saved, nothing is trained twice.
    assert interruptions == 4 * CHANGES["epochs"] * changes["starts"]
    assert numbers(tmp_path) == expected


def test_stopped_in_the_middle_of_evaluation(tmp_path: Path) -> None:
    """Layers may remember what they saw in validation: half a validation must leave no trace."""

    class Remembering(tiny_fold.Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("largest", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.largest = torch.maximum(self.largest, x.detach().abs().max())
            return super().forward(x) * (1 + 0.01 * self.largest)

    class Late(Restore):
        def eval_step(self, network: nn.Module, batch: dict[str, Any]) -> Any:
            LEFT[0] -= 1
            if LEFT[0] == 0:
                STOP[0].request("SIGTERM")
            return super().eval_step(network, batch)

    STOP, LEFT = [StopRequest()], [10**6]
    changes: dict[str, Any] = {"build_network": Remembering, "task": Late(), "eval_batch_size": 1, "epochs": 2}
    train(tmp_path / "whole", **changes)
    calls = 10**6 - LEFT[0]
    for at in range(1, calls):
        STOP[0], LEFT[0] = StopRequest(), at
        job, folder = make_job(tmp_path / str(at), **changes), tmp_path / str(at)
        with pytest.raises(Interrupted, match="stopped by SIGTERM"):
            train_fold(job, reporter=QuietReporter(), stop=STOP[0])
        train(folder, **changes)
        assert numbers(folder) == numbers(tmp_path / "whole"), f"stopped in evaluation {at}"


def test_damaged_last_goes_on_from_the_one_before(tmp_path: Path) -> None:
    train(tmp_path / "whole", **CHANGES)
    job = make_job(tmp_path / "fold", **CHANGES)
    train_fold(job, reporter=QuietReporter(), stop=StopRequest())
    (tmp_path / "fold/status.json").unlink()
    last = tmp_path / "fold/last.pt"
    last.write_bytes(last.read_bytes()[:-50])
    reporter = QuietReporter()
    train_fold(job, reporter=reporter, stop=StopRequest(), resume=True)
    assert "Going on from last.previous.pt, saved after epoch 1." in reporter.warnings[0]
    (tmp_path / "fold/last.pt.damaged").unlink()
    assert numbers(tmp_path / "fold") == numbers(tmp_path / "whole")


def script(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(SCRIPT), str(folder), *arguments]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_signals_from_outside(number: signal.Signals, tmp_path: Path) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        script(tmp_path / "fold", "--pause", "0.1", "--epochs", "2"), stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("fold 0, epoch 1/")
    time.sleep(0.15)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        assert process.returncode == 130
        assert output == f"fold 0 stopped by {name}; its state is saved.\n"
        assert checkpoint.load(tmp_path / "fold/last.pt").step > 0
    reporter = PlainReporter(sys.stdout)
    train_fold(make_job(tmp_path / "fold", **CHANGES), reporter=reporter, stop=StopRequest(), resume=True)
    train(tmp_path / "whole", **CHANGES)
    assert numbers(tmp_path / "fold") == numbers(tmp_path / "whole")


def start_with_workers(folder: Path) -> subprocess.Popen[str]:
    """A training in a process group of its own, in the middle of its second epoch."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        script(folder, "--pause", "0.3", "--epochs", "2", "--workers", "2"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline().startswith("fold 0, epoch 1/")
    time.sleep(0.7)
    return process


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_the_whole_process_group_with_workers(number: signal.Signals, tmp_path: Path) -> None:
    process = start_with_workers(tmp_path / "fold")
    os.killpg(process.pid, number)
    output, errors = process.communicate(timeout=60)
    name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    assert (process.returncode, output) == (130, f"fold 0 stopped by {name}; its state is saved.\n"), errors
    assert "Traceback" not in errors
    state = checkpoint.load(tmp_path / "fold/last.pt")
    assert (state.epoch, state.step > 0) == (1, True)
    assert not alive(process.pid)


@pytest.mark.slow
def test_workers_of_a_killed_training_end_by_themselves(tmp_path: Path) -> None:
    process = start_with_workers(tmp_path / "fold")
    process.kill()
    process.communicate(timeout=60)
    # Workers look every five seconds whether their parent is still there.
    end = time.monotonic() + 20
    while alive(process.pid) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(process.pid)


@pytest.mark.parametrize("stopped", [True, False])
def test_worker_that_the_signal_ended_is_a_stop_only_where_one_was_asked_for(stopped: bool, tmp_path: Path) -> None:
    stop = StopRequest()

    class Dying(tiny_fold.Tiny):
        def training(self, indices: Any, key: tuple[Any, ...]) -> Any:
            return Broken(indices, key, [(8, 8)] * len(indices))

    class Broken(tiny_fold.Pictures):
        """Fails at its ninth item, the first of the third batch."""

        def __getitem__(self, position: int) -> dict[str, Any]:
            SEEN.append(position)
            if len(SEEN) == 9:
                if stopped:
                    stop.request("SIGTERM")
                raise RuntimeError("DataLoader worker is killed by signal: Terminated")
            return super().__getitem__(position)

    SEEN: list[int] = []
    job = make_job(tmp_path / "fold", source=Dying(), **CHANGES)
    with pytest.raises(Interrupted if stopped else RuntimeError, match="SIGTERM" if stopped else "killed by signal"):
        train_fold(job, reporter=QuietReporter(), stop=stop)
    if stopped:
        assert checkpoint.load(tmp_path / "fold/last.pt").step == 2
        train(tmp_path / "fold", **CHANGES)
        train(tmp_path / "whole", **CHANGES)
        assert numbers(tmp_path / "fold") == numbers(tmp_path / "whole")


def test_second_ctrl_c_stops_at_once_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    stop = StopRequest()
    with stop.install():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
