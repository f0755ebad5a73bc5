"""A user's operator, metric, network and data from outside: one file and one yaml each, nothing of ours edited."""

import json
from pathlib import Path

import pytest

from onn_runner.cli.run import main

SMALL = (
    "data.photographs=[camera,coins,moon,page]",
    "data.patches=4",
    "data.patch=24",
    "data.max_side=96",
    "network.channels=[4]",
    "trainer.pictures=false",
    "partition.folds=2",
    "trainer.epochs=1",
    "trainer.tensorboard=false",
)

OPERATOR = """
from dataclasses import dataclass
import torch
from onn_runner.ops import Nodal

def swirl(w, x, gain=1.0):
    return torch.sin(gain * w * x) * torch.cos(x)

@dataclass(frozen=True, kw_only=True)
class Bump(Nodal):
    width: float = 1.0

    def __call__(self, w, x):
        return w * torch.exp(-(x / self.width) ** 2)
"""

METRIC = """
import torch
from torchmetrics import Metric

class Worst(Metric):
    higher_is_better = False
    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("largest", default=torch.zeros(()), dist_reduce_fx="max")

    def update(self, prediction, target):
        self.largest = torch.maximum(self.largest, (prediction - target).abs().max())

    def compute(self):
        return self.largest
"""

SWIRL = """# @package _global_
# sin(gain w x) cos(x)
operators:
  swirl:
    _target_: mine_ops.swirl
    gain: 1.0
ops:
  swirl: ${operators.swirl}
"""

BUMP = """# @package _global_
# w exp(-(x/width)^2)
operators:
  bump:
    _target_: mine_ops.Bump
    width: 0.5
ops:
  bump: ${operators.bump}
"""

WORST = """# @package _global_
# Largest error of an item
metrics:
  worst:
    _target_: mine_metric.Worst
"""

OWN = ["--config-dir", "mine", "--module", "mine_ops,mine_metric"]
YAML = {"ops/swirl.yaml": SWIRL, "ops/bump.yaml": BUMP, "metric/worst.yaml": WORST}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_ops.py").write_text(OPERATOR)
    (tmp_path / "mine_metric.py").write_text(METRIC)
    for name, text in YAML.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def results(where: Path) -> dict:
    (path,) = where.glob("outputs/*/*/results.json")
    return json.loads(path.read_text())


def test_a_users_operators_and_metric_are_like_the_built_in_ones(mine, capsys):
    code = main(
        [
            *OWN,
            "ops=[sine,swirl,bump]",
            "operators.swirl.gain=2",
            "metric=[psnr,worst]",
            *SMALL,
        ]
    )
    assert code == 0
    content = results(mine)
    assert content["higher_is_better"] == {"psnr": True, "worst": False}
    assert content["cv"]["test/worst"]["mean"] > 0
    facts = content["network"]["rows"][0]["facts"]
    assert [list(pair) for pair in facts["operators"]] == [["sine", 2], ["swirl", 1], ["bump", 1]]
    assert facts["computed_by"] == "chebyshev"
    assert "WORST ↓" in capsys.readouterr().out


def test_a_users_operator_is_resumed_with_its_folder(mine):
    words = [*OWN, "ops=[swirl]", *SMALL]
    assert main(words) == 0
    (run,) = (path.parent for path in mine.glob("outputs/*/*/run.json"))
    assert main([*OWN[2:], f"resume={run}", "trainer.epochs=2"]) == 0
    assert results(mine)["folds"][0]["starts"][0]["epochs_run"] == 2


def test_operators_that_only_a_layer_names_are_found_with_their_parameters(mine):
    code = main(["ops=sine", "model.layers=[[bump,mul]]", *OWN, "operators.bump.width=2", *SMALL])
    assert code == 0
    operators = results(mine)["network"]["rows"][0]["facts"]["operators"]
    assert [list(pair) for pair in operators] == [["bump", 2], ["mul", 2]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ops=[sine,swril]"], "Did you mean swirl"),
        (["ops=[swirl]", "operators.swirl.gian=2"], "operators.swirl.gain"),
        (["ops=sine", "model.layers=[[sine,bmup]]"], "Did you mean bump"),
    ],
)
def test_misspelt_own_names_are_told_like_the_built_in_ones(mine, capsys, words, message):
    assert main([*OWN, *words, *SMALL]) == 2
    assert message in capsys.readouterr().err


def test_a_scheduler_of_torch_is_one_yaml(mine, capsys):
    path = mine / "mine" / "scheduler" / "stairs.yaml"
    path.parent.mkdir()
    path.write_text("# Down every few epochs\n_target_: torch.optim.lr_scheduler.StepLR\nstep_size: 1\ngamma: 0.1\n")
    words = [*OWN, "scheduler=stairs", "model=conv", *SMALL]
    assert main([*words, "scheduler.gamma=x"]) == 2
    assert "StepLR refuses scheduler" in capsys.readouterr().err
    assert main([*words, "trainer.epochs=2"]) == 0
    rates = [
        row for row in (mine / next(mine.glob("outputs/*/*/metrics.csv"))).read_text().splitlines() if "rate" in row
    ]
    assert [row.rpartition(",")[2] for row in rates[:2]] == ["0.01", "0.001"]


@pytest.mark.parametrize("preset", ["default", "fastonn", "gop"])
def test_every_operator_runs_under_every_preset(mine, preset):
    names = "mul,cubic,quadratic,sine,exp,sinh,sinc,chirp,gaussian,dog,log"
    code = main([f"ops={names}", f"operators={preset}", "dry_run=true", *SMALL, "network.channels=[11]"])
    assert code == 0


@pytest.mark.parametrize("pool", ["sum", "mean", "median", "max", "min", "correlation2", "correlation3"])
def test_every_pool_trains(mine, pool):
    assert main([f"model.pool={pool}", "ops=sine,exp", *SMALL]) == 0
    computed = results(mine)["network"]["rows"][0]["facts"]["computed_by"]
    assert computed == ("chebyshev" if pool in ("sum", "mean") else "tapwise")


@pytest.mark.parametrize(
    "words",
    [
        *(["model=self_onn", f"model.q={q}"] for q in (1, 5)),
        *(["model=quadratic", f"model.type={kind}"] for kind in ("t2", "t3", "t4", "t2_4", "quadralib")),
        ["model=onn", "compute=tapwise"],
        ["model=onn", "compute=reference"],
        ["model=onn", "network.output=same"],
        ["network.channels=[4,6]", "network.kernels=[5,4,3]", "network.sampling=[max2,up2,none]"],
    ],
    ids=" ".join,
)
def test_every_neuron_type_and_kernel_trains(mine, words):
    assert (
        main([*words, *SMALL[:4], *SMALL[5:], *([] if "network.channels=[4,6]" in words else ["network.channels=[4]"])])
        == 0
    )
    assert results(mine)["status"] == "done"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["optimizer.lr=inf"], 2, "optimizer.lr (=inf) must be a finite number"),
        (["optimizer=sgd", "optimizer.momentum=nan"], 2, "optimizer.momentum (=nan) must be a finite number"),
        (["optimizer=sgd", "optimizer.lr=1e30", "dry_run=true"], 1, "the first training steps already diverge"),
        (["network.channels=[100000000000,16]"], 2, "too large for the memory"),
        (["ops=sine,exp,mul", "network.channels=[2]"], 2, "layer 0 has 2 neurons for 3 operators"),
        (["task.clip=true"], 2, "task.clip (=True) must be [low, high]"),
        (["task.clip=[a,b]"], 2, "task.clip (=['a', 'b']) must be [low, high]"),
        (["operators.sine=7"], 2, "operators.sine"),
        (["operators.sine=null"], 2, "operators.sine"),
        (["scheduler=multistep", "scheduler.milestones=7"], 2, "scheduler.milestones (=7) must be a list of epochs"),
        (["model.layers={a:1}"], 2, "model.layers"),
        (["model.layers=7"], 2, "model.layers"),
        (["model.layers=[[[sine]],[mul]]"], 2, "model.layers"),
        (["name=[a]"], 2, "name"),
        (["model.layers=sine"], 2, "model.layers (=sine) must be a list"),
        (["model.layers=[1,2]"], 2, "model.layers (=[1, 2]) must be a list"),
    ],
)
def test_values_that_only_the_machine_refuses_are_told_in_a_sentence(mine, capsys, words, code, message):
    assert main([*SMALL, *words]) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
