"""A sweep as TensorBoard's own server shows it: one row a job, folds and models overlaid, nothing doubled."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onn_runner.cli.run import main

SWEEP = (
    *("-m", "data=denoise", "data.photographs=[camera,coins,moon,page]", "data.patches=4", "data.patch=16"),
    *("data.max_side=64", "network.channels=[3]", "trainer.pictures=false", "partition.folds=2", "trainer.epochs=2"),
    *("trainer.preview_items=0", "trainer.batch_size=4", "metric=[psnr]", "name=study"),
)
JOBS = tuple(f"model-{model}_optimizer.lr-{rate}" for model in ("conv", "onn") for rate in ("0.01", "1e+30"))
"""Those of the second rate diverge."""
JSON = {"Content-Type": "application/json"}


class Server:
    """TensorBoard on a free port."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}/"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", str(port)),
                *("--host", "127.0.0.1", "--load_fast=false"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, path: str, content: Any = None) -> Any:
        body = None if content is None else json.dumps(content).encode()
        with urllib.request.urlopen(urllib.request.Request(self.address + path, body, JSON), timeout=30) as answer:
            return json.load(answer)

    def wait(self, runs: int) -> None:
        """Until it has read so many runs."""
        for _ in range(300):
            try:
                if len(self.ask("data/runs")) >= runs and len(self.rows()) >= len(JOBS):
                    return
            except (urllib.error.URLError, ConnectionError):
                assert self.process.poll() is None
            time.sleep(0.1)
        pytest.fail("TensorBoard did not read the study within half a minute")

    def experiment(self) -> Any:
        return self.ask("data/plugin/hparams/experiment", {"experimentName": ""})

    def rows(self) -> Any:
        columns = [{"metric": info["name"]} for info in self.experiment().get("metricInfos", [])]
        statuses = [f"STATUS_{word}" for word in ("SUCCESS", "FAILURE", "RUNNING", "UNKNOWN")]
        asked = {"experimentName": "", "allowedStatuses": statuses, "colParams": columns, "startIndex": 0}
        return self.ask("data/plugin/hparams/session_groups", {**asked, "sliceSize": 99}).get("sessionGroups", [])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Of a sweep over models with jobs that diverge and one that was killed in its last epoch and resumed."""
    where = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        assert main([*SWEEP, "model=conv,onn", "optimizer.lr=0.01,1e30"]) == 1
        job = where / "multirun" / "study" / JOBS[0]
        fold = job / "fold_01"
        (fold / "status.json").unlink()
        (fold / "last.previous.pt").rename(fold / "last.pt")
        assert main([f"resume={job}"]) == 0
    started = Server(where / "multirun")
    try:
        started.wait(3 * len(JOBS))
        yield started
    finally:
        started.process.terminate()
        started.process.wait(timeout=20)


def test_one_row_a_job_with_its_status(server: Server) -> None:
    rows = {row["name"]: [session["status"] for session in row["sessions"]] for row in server.rows()}
    assert rows == {f"study/{job}": ["STATUS_FAILURE" if "1e+30" in job else "STATUS_SUCCESS"] for job in JOBS}


def test_rows_have_the_cross_validated_means(server: Server) -> None:
    for row in server.rows():
        values = {entry["name"]["tag"]: entry["value"] for entry in row.get("metricValues", [])}
        if "1e+30" not in row["name"]:
            assert values["best/psnr_mean"] == values["cv/psnr_mean"] > 5
            assert "cv/psnr_std" in values


def test_columns_are_those_of_all_models(server: Server) -> None:
    columns = {info["name"]: info.get("differs", False) for info in server.experiment()["hparamInfos"]}
    assert {name for name, differs in columns.items() if differs} == {"model", "ops", "optimizer.lr"}
    # Of the operators, which the convolution has none of; a constant of all.
    assert {"operators.sine.omega", "data.sigma"} <= set(columns)


def test_folds_and_models_overlay_and_no_point_is_doubled(server: Server) -> None:
    tags = server.ask("data/plugin/scalars/tags")
    assert {f"study/{job}{fold}" for job in JOBS for fold in ("", "/fold_00", "/fold_01")} >= set(tags)
    assert "cv_curves/val_psnr_mean" in tags[f"study/{JOBS[0]}"]
    assert "cv_curves/val_psnr_mean" in tags[f"study/{JOBS[2]}"]
    steps = {}
    for run, names in tags.items():
        for tag in names:
            asked = urllib.parse.urlencode({"run": run, "tag": tag})
            steps[run, tag] = [step for _, step, _ in server.ask(f"data/plugin/scalars/scalars?{asked}")]
    assert all(found == sorted(set(found)) for found in steps.values())
    for fold in ("fold_00", "fold_01"):
        assert steps[f"study/{JOBS[0]}/{fold}", "val/psnr"] == [1, 2]
