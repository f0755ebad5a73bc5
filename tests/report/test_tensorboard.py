"""The run's own events, read back with TensorBoard's reader."""

import time

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.api_pb2 import Status
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from onn_runner.report import results, tensorboard

CONFIG = {
    "ops": {"sine": {"k": 1.0}, "exp": {}},
    "operators": {"sine": {"_target_": "a.Sine", "k": 1.0}, "exp": {"_target_": "a.Exp"}, "mul": {"k": 9}},
    "metrics": {"psnr": {"_target_": "m.Psnr"}},
    "model": {"_target_": "onn_runner.model.operational.Operational", "layers": None},
    "network": {"channels": [16, 16]},
    "optimizer": {"lr": 0.01},
    "seed": 0,
}


def content():
    start = {
        "start": 0, "status": "done", "best_epoch": 2, "epochs_run": 2, "seconds_per_epoch": 1.0,
        "validation": {"val/psnr": 27.0}, "test": {"test/psnr": 28.0, "photo/psnr": 29.0},
        "left_out": {}, "diverged": None,
    }  # fmt: skip
    folds = [
        {"fold": 0, "status": "done", "best_start": 0, "starts": [start]},
        {"fold": 1, "status": "done", "best_start": 0, "starts": [start | {"test": {"test/psnr": 30.0}}]},
    ]
    return results.collect(
        name="onn", status="done", monitor="val/psnr", higher_is_better={"psnr": True}, network={},
        folds=folds, baselines={}, warnings=[], seconds=1.0,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    rows = ["fold,start,epoch,split,metric,value"]
    rows += [f"{fold},0,{epoch},val,psnr,{20 + fold + epoch}" for fold in (0, 1) for epoch in (1, 2)]
    (tmp_path / "metrics.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def read(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def test_cross_validated_means_and_curves_are_scalars(folder):
    tensorboard.write_run(folder, content(), parameters=CONFIG, failed=False)
    events = read(folder)
    (point,) = events.Scalars("cv/psnr_mean")
    assert point.value == pytest.approx(29.0)
    assert events.Scalars("cv/photo_psnr_mean")[0].value == pytest.approx(29.0)
    assert events.Scalars("folds/psnr_fold_01")[0].value == pytest.approx(30.0)
    assert [(p.step, p.value) for p in events.Scalars("cv_curves/val_psnr_mean")] == [(1, 21.5), (2, 22.5)]


@pytest.mark.parametrize("failed", [False, True])
def test_one_hparams_row_with_its_status(folder, failed):
    tensorboard.write_run(folder, content(), parameters=CONFIG, failed=failed)
    tags = read(folder).summary_metadata
    start = HParamsPluginData.FromString(tags["_hparams_/session_start_info"].plugin_data.content)
    values = {key: value.string_value for key, value in start.session_start_info.hparams.items()}
    assert values["ops"] == "sine+exp"
    assert values["network.channels"] == "16,16"
    assert values["model"] == "onn"
    assert "operators.sine.k" in values
    assert not any("_target_" in key or key.startswith("operators.mul") for key in values)
    end = HParamsPluginData.FromString(tags["_hparams_/session_end_info"].plugin_data.content)
    assert end.session_end_info.status == Status.Value("STATUS_FAILURE" if failed else "STATUS_SUCCESS")
    assert "_hparams_/experiment" not in tags


def test_writing_again_replaces_the_points(folder):
    for _ in range(2):
        tensorboard.write_run(folder, content(), parameters=CONFIG, failed=False)
    assert len(read(folder).Scalars("cv/psnr_mean")) == 1
    assert sum(path.stat().st_size > 0 for path in folder.glob("events.out.tfevents.*")) == 1


def test_one_that_reads_already_sees_the_new_points_alone(folder):
    tensorboard.write_run(folder, content(), parameters=CONFIG, failed=True)
    events = read(folder)
    assert events.Scalars("cv/psnr_mean")[0].value == pytest.approx(29.0)
    # Readers go by the second in the file's name.
    (first,) = folder.glob("events.out.tfevents.*")
    time.sleep(max(0.0, int(first.name.split(".")[3]) + 1 - time.time()))
    changed = content()
    changed["cv"]["test/psnr"]["mean"] = 31.0
    tensorboard.write_run(folder, changed, parameters=CONFIG, failed=False)
    events.Reload()
    assert [point.value for point in events.Scalars("cv/psnr_mean")] == [31.0]
    for _ in range(3):
        tensorboard.write_run(folder, changed, parameters=CONFIG, failed=False)
    assert len(list(folder.glob("events.out.tfevents.*"))) <= 2


def test_what_is_monitored_comes_first(folder):
    tensorboard.write_run(folder, content(), parameters=CONFIG, failed=False)
    first = sorted(tag for tag in read(folder).Tags()["scalars"])[:3]
    assert first == ["best/psnr_mean", "best/psnr_std", "best/val_psnr_mean"]
    assert "name" not in tensorboard.hyperparameters({**CONFIG, "name": "a"})


def test_infinite_scores_are_written_without_a_deviation(folder):
    with (folder / "metrics.csv").open("a") as handle:
        handle.write("0,0,3,val,psnr,inf\n1,0,3,val,psnr,30.0\n")
    tensorboard.write_run(folder, content(), parameters=CONFIG, failed=False)
    assert [p.step for p in read(folder).Scalars("cv_curves/val_psnr_std")] == [1, 2]


def test_models_without_operators_are_recorded_as_such():
    assert tensorboard.hyperparameters({**CONFIG, "ops": "-", "operators": {}})["ops"] == "-"


def test_the_difference_to_a_twin_is_a_column_and_the_twin_a_run_of_its_own(folder):
    made = content()
    twin = {"name": "conv", "network": {}, "folds": made["folds"], "cv": made["cv"], "cv_starts": {}}
    entry = {"groups": {"mean": 0.25, "low": None, "high": None}}
    made |= {"twin": twin, "comparison": {"unit": "items", "to": {"conv": {"test/psnr": entry}, "blur": {}}}}
    (folder / "baseline").mkdir()
    (folder / "metrics.csv").rename(folder / "baseline" / "metrics.csv")
    config = {**CONFIG, "baseline": {"_target_": "onn_runner.model.conv.Conv", "activation": "relu"}}
    for _ in range(2):
        tensorboard.write_run(folder, made, parameters=config, failed=False)
    events = read(folder)
    assert [point.value for point in events.Scalars("difference/psnr_to_conv")] == [0.25]
    assert not any("low" in tag for tag in events.Tags()["scalars"])
    start = HParamsPluginData.FromString(
        events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    ).session_start_info
    assert start.hparams["baseline"].string_value == "conv"
    assert start.hparams["baseline.activation"].string_value == "relu"
    beside = read(folder / "baseline")
    assert beside.Scalars("cv/psnr_mean")[0].value == pytest.approx(29.0)
    assert [p.step for p in beside.Scalars("cv_curves/val_psnr_mean")] == [1, 2]
    assert not any(tag.startswith("_hparams_") for tag in beside.summary_metadata)


def test_a_run_without_a_baseline_says_so():
    assert tensorboard.hyperparameters(CONFIG)["baseline"] == "-"
