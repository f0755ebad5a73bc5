"""Run folders as records: what each came to, and that nothing in a folder leads elsewhere or stops the reading."""

import json
from pathlib import Path

import pytest
from study_examples import write_job, write_plan, write_run, write_sweep, write_troubled

from onn_runner import locking
from onn_runner.errors import ConfigError
from onn_runner.study.reading import read, read_run
from onn_runner.study.records import Run


def by_name(runs: tuple[Run, ...]) -> dict[str, Run]:
    return {run.folder.name: run for run in runs}


def test_a_finished_run_is_read_with_all_it_tells(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", "onn", seed=3, optimizer__lr=0.1))
    assert (run.name, run.status, run.reason, run.seed) == ("onn-denoise", "done", "", 3)
    assert (run.folds_done, run.folds_planned) == (3, 3)
    assert run.command == "onn-run model=onn seed=3 optimizer.lr=0.1"
    assert run.fingerprint == "d1fb7375a7aa646d"
    assert run.code == "0.1.0+0123456789"
    assert run.config["optimizer"]["lr"] == 0.1
    assert run.results is not None
    assert len(run.results["folds"]) == 3


def test_the_command_of_a_run_can_be_pasted(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    record = json.loads((folder / "run.json").read_text())
    record |= {"overrides": ["data.path=a b; rm -rf *"], "flags": ["--config-dir=/x y"]}
    (folder / "run.json").write_text(json.dumps(record))
    assert read_run(folder).command == "onn-run '--config-dir=/x y' 'data.path=a b; rm -rf *'"


def test_what_went_wrong_in_a_sweep_is_told_of_each_job(tmp_path: Path) -> None:
    runs = by_name(read([write_troubled(tmp_path / "sweep")]))
    told = {name: (run.status, run.reason) for name, run in runs.items() if run.status != "done"}
    damaged = told.pop("model-self_onn_seed-0")
    assert damaged[0] == "unreadable"
    assert damaged[1].startswith("results.json cannot be read (")
    assert told == {
        "model-conv_seed-2": ("killed", "its process is gone; 2 of 3 folds done"),
        "model-onn_seed-2": ("interrupted", "1 of 3 folds done"),
        "model-self_onn_seed-1": ("waiting", "not started"),
        "model-self_onn_seed-2": ("waiting", "not started"),
        "model-quadratic_seed-0": ("refused", "no such type: 'x'"),
        "model-quadratic_seed-1": ("waiting", "not started"),
        "model-quadratic_seed-2": ("waiting", "not started"),
    }
    assert len(runs) == 12
    assert all(run.sweep == tmp_path / "sweep" for run in runs.values())


@pytest.mark.parametrize("lock", [".lock", ".job.lock"])
def test_a_run_whose_process_lives_is_running(tmp_path: Path, lock: str) -> None:
    folder = write_run(tmp_path / "run", status="running", done=1)
    with locking.hold(folder / lock):
        assert read_run(folder).status == "running"
    assert read_run(folder).status == "killed"


@pytest.mark.parametrize(
    ("record", "job", "status"),
    [
        ("pruned", "pruned", "pruned"),
        ("failed", "failed", "failed"),
        ("done", "finished", "done"),
        ("diverged", "failed", "diverged"),
        ("interrupted", "stopped", "interrupted"),
        # A job that failed before its run told so.
        ("running", "failed", "failed"),
    ],
)
def test_a_job_and_its_run_are_one(tmp_path: Path, record: str, job: str, status: str) -> None:
    folder = write_run(tmp_path / "run", status=record)
    write_job(folder, overrides=["seed=0"], status=job, error="what happened" if job == "failed" else "")
    assert read_run(folder).status == status


@pytest.mark.parametrize("name", ["config.yaml", "split.json", "run.json", "results.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff\xfe\x00", b"[]", b"null", b'"text"', b"{}", b'{"schema": 1}', b"[" * 100_000,
        b'{"schema": 1, "folds": 3, "fingerprint": null}', b'{"schema": 1, "folds": [{"fold": "x"}]}',
        b'{"schema": 1, "status": ["done"], "overrides": {"a": 1}}', b"!!python/object/apply:os.system ['true']",
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_and_never_raises(tmp_path: Path, name: str, content: bytes) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).write_bytes(content)
    run = read_run(folder)
    assert (run.status, run.reason != "") in (("unreadable", True), ("killed", True))
    # An empty object is what a record has that was never written.
    assert name in run.reason or content == b"{}" or name == "run.json"


def test_a_config_that_aliases_blow_up_is_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    lines = ["network: {a: 1}", "a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    (folder / "config.yaml").write_text("\n".join(lines))
    assert "config.yaml cannot be read (with its references replaced it has more than" in read_run(folder).reason


@pytest.mark.parametrize("name", ["config.yaml", "split.json", "run.json", "results.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).unlink()
    assert read_run(folder).reason == f"{name} is missing"


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "results.json").unlink()
    (folder / "results.json").mkdir()
    assert read_run(folder).reason == "results.json is no file"


@pytest.mark.parametrize("name", ["../outside", "..", ".", "", "/etc", "a/../../outside", "a\\b", 3, None])
def test_a_plan_leads_nowhere_but_into_its_sweep(tmp_path: Path, name: object) -> None:
    write_run(tmp_path / "outside")
    sweep = write_sweep(tmp_path / "sweep", ("conv",), (0,))
    write_plan(sweep, [{"folder": name, "overrides": []}, {"folder": "model-conv_seed-0", "overrides": []}])
    assert [run.folder for run in read([sweep])] == [sweep / "model-conv_seed-0"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    write_run(tmp_path / "outside" / "run")
    sweep = write_sweep(tmp_path / "sweep", ("conv",), (0,))
    (sweep / "linked").symlink_to(tmp_path / "outside" / "run")
    (sweep / "round").symlink_to(sweep)
    assert len(read([sweep])) == 1


def test_a_run_that_is_reached_twice_is_read_once(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", ("conv",), (0, 1))
    assert len(read([tmp_path, sweep, sweep / "model-conv_seed-0"])) == 2


def test_earlier_jobs_and_reports_are_passed_over(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", ("conv",), (0,))
    write_run(sweep / "earlier" / "model-conv_seed-0-1")
    (sweep / "report").mkdir()
    assert len(read([sweep])) == 1


@pytest.mark.parametrize("name", ["report", "earlier", "baseline", "joined", "fold_00"])
def test_a_run_may_be_called_anything(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "outputs" / name / "2026-01-01")
    assert len(read([tmp_path / "outputs"])) == 1


def test_runs_of_a_folder_without_a_plan_are_found(tmp_path: Path) -> None:
    write_run(tmp_path / "outputs" / "conv-denoise" / "2026-01-01")
    assert [run.sweep for run in read([tmp_path])] == [None]


def test_a_folder_without_a_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run in there"):
        read([tmp_path])
    with pytest.raises(ConfigError, match="there is no such folder"):
        read([tmp_path / "nowhere"])
