"""`onn status` as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from study_examples import write_job, write_plan, write_run, write_sweep
from typer.testing import CliRunner

from onn_runner import locking, storage
from onn_runner.cli import status
from onn_runner.cli.onn import app
from onn_runner.errors import ConfigError


def answer(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["status", *words], catch_exceptions=False)
    return done.exit_code, done.output


def test_a_sweep_that_is_well(tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", ("conv", "onn"), (0, 1))
    code, text = answer(str(tmp_path / "s"))
    assert code == 0
    assert "finished, 4 jobs: 4 finished" in text
    assert "model-onn_seed-1" in text
    assert "val/psnr" in text


def test_a_failure_is_told_with_its_reason(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", ("conv",), (0,))
    write_job(sweep / "bad", overrides=["model=x"], status="failed", exit_code=2, error="no [red]such\x1b[2J model\n!")
    write_plan(sweep, [{"folder": name, "overrides": []} for name in ("model-conv_seed-0", "bad", "later[bold]\x07")])
    code, text = answer(str(sweep))
    assert code == 1
    assert "1 failed, 1 finished, 1 waiting" in text
    assert "bad failed: no [red]such\\x1b[2J model\\n!" in text
    assert "later[bold]\\x07" in text
    assert "\x1b" not in text


def test_json_is_for_programs(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "s", ("conv",), (0,))
    write_run(tmp_path / "run", status="running", done=1)
    code, text = answer(str(sweep), str(tmp_path / "run"), "--json")
    assert code == 1
    told = json.loads(text)
    assert told["sweeps"][0]["counts"] == {"finished": 1}
    assert told["sweeps"][0]["jobs"][0]["folds"] is not None
    (run,) = told["runs"]
    assert (run["status"], run["folds_done"], run["folds"]) == ("killed", 0, 3)


def test_a_run_fold_by_fold(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="interrupted", done=1)
    code, text = answer(str(run))
    assert code == 0
    assert "stopped, 0 of 3 folds done" in text
    assert f"onn-run resume={run}" in text


def test_what_has_no_room_is_counted(tmp_path: Path) -> None:
    write_plan(tmp_path / "s", [{"folder": f"seed-{n}", "overrides": [f"seed={n}"]} for n in range(status.MOST + 5)])
    _, text = answer(str(tmp_path / "s"))
    assert "not shown: 5 waiting" in text
    assert "seed-199" in text
    assert "seed-200" not in text
    assert "seed-204" in answer(str(tmp_path / "s"), "--all")[1]


def test_a_bad_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder") as caught:
        answer(str(tmp_path / "x"))
    assert caught.value.exit_code == 2


def test_it_is_watched_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", status="running", done=1)
    looks = []

    def end(seconds: float) -> None:
        looks.append(seconds)
        storage.write_json(run / "run.json", json.loads((run / "run.json").read_text()) | {"status": "done"})

    monkeypatch.setattr(time, "sleep", end)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with locking.hold(run / ".lock"):
        code, text = answer(str(run))
    assert code == 0
    assert looks == [status.PAUSE]
    assert "running, 0 of 3 folds done" in text
    assert "finished" in text


def test_ctrl_c_ends_the_watching_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", status="running", done=1)

    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", stop)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with locking.hold(run / ".lock"):
        code, text = answer(str(run))
        assert code == 0
        assert "running" in text
        code, text = answer(str(run), "--once")
        assert code == 0


def test_it_starts_without_torch(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    program = (
        "import sys; from onn_runner.cli import onn; sys.argv = ['onn', 'status', sys.argv[1]]\n"
        "try: onn.main()\n"
        "finally: assert not {'torch', 'hydra', 'matplotlib', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout
