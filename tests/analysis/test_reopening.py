"""Opening a finished run: the stored config, the best weights, and one sentence for what cannot be opened."""

import json
import shutil

import pytest
import torch
import yaml

from onn_runner.cli.reopening import open_run
from onn_runner.errors import ConfigError
from onn_runner.model.conv import ConvLayer
from onn_runner.model.self_onn import SelfONNLayer
from onn_runner.trainer import batches


def test_the_network_has_the_best_weights_of_each_fold_and_of_the_twin(finished):
    opened = open_run(finished)
    assert [fold.index for fold in opened.folds] == [0, 1]
    for number in (0, 1):
        for twin, below, kind in ((False, ".", SelfONNLayer), (True, "baseline", ConvLayer)):
            network = opened.network(number, twin=twin)
            stored = torch.load(finished / f"fold_{number:02d}" / below / "best.pt", weights_only=True)["network"]
            assert isinstance(network.layers[0], kind)
            assert not network.training
            state = network.state_dict()
            assert all(torch.equal(state[name], value) for name, value in stored.items() if torch.is_tensor(value))
    assert opened.experiment.twin.name == "conv"
    assert "model=self_onn" in opened.overrides
    assert opened.notes == ()


def test_it_predicts_what_the_run_scored(finished):
    opened = open_run(finished, device="cpu")
    engine, job = opened.engine(0), opened.job(0)
    part = job.fold.test
    batch = batches.collate(job.source.fixed(part), range(len(part)), engine.device)
    with torch.no_grad():
        output = job.task.eval_step(engine.evaluating, batch)
    metric = job.build_metrics()["psnr"]
    metric.update(output.prediction, output.target)
    scored = opened.best(0).test["test/psnr"]
    # The same items in one batch: sums over another order.
    assert metric.value() == pytest.approx(scored, rel=1e-5)


def test_opening_leaves_the_random_state_and_the_working_of_hydra_alone(finished):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    open_run(finished).network(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_texts_that_look_like_interpolations_mean_themselves(finished):
    config = yaml.safe_load((finished / "config.yaml").read_text())
    (finished / "config.yaml").write_text(yaml.safe_dump({**config, "note": r"a ${b} \${c}"}))
    assert open_run(finished).experiment.config["note"] == r"a ${b} \${c}"


def refusal(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


def test_what_is_no_run_is_named(finished, tmp_path):
    assert "there is no such folder" in refusal(lambda: open_run("nowhere"))
    assert f"not a run folder (it has no run.json); the newest run in it is {tmp_path / 'run'}" in refusal(
        lambda: open_run(tmp_path)
    )
    record = json.loads((finished / "run.json").read_text())
    (finished / "run.json").write_text(json.dumps({**record, "schema": 99}))
    assert refusal(lambda: open_run(finished)).startswith("run: run.json is not of this version")


def test_a_fold_that_is_not_there_or_not_done_is_named(finished):
    opened = open_run(finished)
    assert "has no fold 7; its folds: 0, 1" in refusal(lambda: opened.network(7))
    status = finished / "fold_01" / "status.json"
    plain = json.loads(status.read_text())
    status.write_text(json.dumps({**plain, "status": "interrupted"}))
    assert "fold 1 in run is not trained to its end: go on with onn-run resume=run" in refusal(
        lambda: opened.network(1)
    )
    status.write_text(json.dumps({**plain, "status": "diverged", "best_start": None}))
    assert "diverged in every start" in refusal(lambda: opened.network(1))
    shutil.rmtree(finished / "fold_01")
    assert "not trained to its end" in refusal(lambda: opened.network(1))


def test_damage_and_other_data_are_named(finished):
    config = (finished / "config.yaml").read_text()
    (finished / "config.yaml").write_text("")
    assert "config.yaml is empty or damaged" in refusal(lambda: open_run(finished))
    (finished / "config.yaml").write_text(config.replace("sigma: 25", "sigma: 26"))
    assert "made for other data" in refusal(lambda: open_run(finished))


def test_another_version_is_a_note(finished):
    record = json.loads((finished / "run.json").read_text())
    record["versions"]["torch"] = "1.0"
    (finished / "run.json").write_text(json.dumps(record))
    (note,) = open_run(finished).notes
    assert "torch 1.0 -> " in note


def test_a_run_without_a_twin_says_so(finished):
    config = yaml.safe_load((finished / "config.yaml").read_text())
    del config["baseline"]
    (finished / "config.yaml").write_text(yaml.safe_dump(config))
    assert "has no baseline" in refusal(lambda: open_run(finished).network(0, twin=True))
