"""Run folders never collide, name what they hold, and keep a second process out."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onn_runner.errors import ConfigError, RunError
from onn_runner.report import folder
from onn_runner.report.folder import RunFolder


def test_runs_that_start_in_the_same_second_get_folders_of_their_own(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda _: folder.create("onn", root=tmp_path).path, range(32)))
    assert len(set(made)) == 32
    assert all(path.is_dir() and path.parent == tmp_path / "onn" for path in made)


def test_a_fixed_folder_that_holds_a_run_is_refused(tmp_path):
    run = folder.create("onn", root=tmp_path, fixed=tmp_path / "mine")
    run.record.write_text("{}")
    with pytest.raises(ConfigError, match=r"already holds a run: go on with resume="):
        folder.create("onn", root=tmp_path, fixed=tmp_path / "mine")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file"):
        folder.create("onn", root=tmp_path / "file")


def test_the_record_says_what_ran(tmp_path):
    content = folder.describe(command=["onn-run", "seed=1"], overrides=["seed=1"], flags=[], code="0.1.0+a", threads=1)
    run = RunFolder(tmp_path)
    run.record.write_text(json.dumps(content))
    run.update_record(status="done")
    record = run.read_record()
    assert record["status"] == "done"
    assert record["command"] == ["onn-run", "seed=1"]
    assert {"torch", "python", "onn-runner", "hydra-core"} <= set(record["versions"])


def test_git_state_is_told_inside_a_repository_and_none_outside(tmp_path):
    assert folder.git_state(tmp_path) is None
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "a").write_text("1")
    subprocess.run([*git, "add", "a"], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "-qm", "a"], cwd=tmp_path, check=True)
    state = folder.git_state(tmp_path)
    assert len(state["commit"]) == 40
    assert state["modified"] is False
    (tmp_path / "a").write_text("2")
    assert folder.git_state(tmp_path)["modified"] is True


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"not a run folder \(it has no run.json\)"),
        ("{", "run.json cannot be read"),
        ("[]", "not of this version"),
        ('{"schema": 99}', "not of this version"),
        (b"\xff\xfe", "run.json cannot be read"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "run.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=message):
        RunFolder(tmp_path).read_record()


def test_a_second_process_is_kept_out_until_the_first_ends(tmp_path):
    program = (
        "import sys; from pathlib import Path; from onn_runner.report.folder import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).lock():\n    print('locked', flush=True); sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(ConfigError, match="being trained by another process"), RunFolder(Path(tmp_path)).lock():
            pass
    finally:
        holder.kill()
        holder.communicate()
    with RunFolder(Path(tmp_path)).lock():
        pass


def test_resuming_with_another_torch_is_told():
    record = folder.describe(command=["onn-run"], overrides=[], flags=[], code="0.1.0+a", threads=1)
    entry, warning = folder.resumption(record, ["onn-run", "resume=x"], code="0.1.0+a")
    assert warning is None
    assert entry["command"] == ["onn-run", "resume=x"]
    assert "code 0.1.0+a -> 0.1.0+b" in folder.resumption(record, ["onn-run"], code="0.1.0+b")[1]
    record["versions"] = {**record["versions"], "torch": "2.0.0"}
    assert "torch 2.0.0 -> " in folder.resumption(record, ["onn-run"], code="0.1.0+a")[1]


def test_a_folder_that_cannot_be_locked_is_named(tmp_path):
    with pytest.raises(RunError, match=r"cannot write .*\.lock"), RunFolder(tmp_path / "gone").lock():
        pass
