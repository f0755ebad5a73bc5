"""conf/ops and conf/operators as Hydra composes them: every operator, the presets, overrides, a user's own file."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from onn_runner.errors import ConfigError
from onn_runner.ops import Nodal, as_nodal

CONF = Path(__file__).resolve().parents[2] / "conf"
FILES = sorted(path.stem for path in (CONF / "ops").glob("*.yaml"))
Compose = Callable[..., dict[str, Any]]


@pytest.fixture
def composed(tmp_path: Path) -> Compose:
    """The resolved config of a small primary config beside the project's conf, and a user's folder `mine`."""
    mine = tmp_path / "mine"
    (mine / "ops").mkdir(parents=True)
    primary = tmp_path / "primary"
    primary.mkdir()
    (primary / "small.yaml").write_text(
        "defaults:\n  - ops: [sine]\n  - operators: default\n  - _self_\n"
        f"hydra:\n  searchpath: ['file://{CONF}', 'file://{mine}']\n"
    )

    def run(*overrides: str) -> dict[str, Any]:
        with initialize_config_dir(config_dir=str(primary), version_base="1.3"):
            config = compose("small", overrides=list(overrides))
        plain = OmegaConf.to_container(config, resolve=True)
        assert isinstance(plain, dict)
        return {str(key): value for key, value in plain.items()}

    return run


def operators(config: dict[str, Any]) -> dict[str, Nodal]:
    return {name: instantiate(node) for name, node in config["ops"].items()}


def test_there_is_a_file_for_each_operator() -> None:
    names = ["chirp", "cubic", "dog", "exp", "gaussian", "log", "mul", "quadratic", "sinc", "sine", "sinh"]
    assert names == FILES


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_the_class_with_its_own_defaults(name: str, composed: Compose) -> None:
    config = composed(f"ops=[{name}]")
    (nodal,) = operators(config).values()
    # the numbers in the file are those of the class: a notebook and a run start from the same operator
    assert nodal == type(nodal)()
    assert list(config["operators"][name])[1:] == [field.name for field in dataclasses.fields(nodal)]
    assert config["initialisation"] == "calibrated"


@pytest.mark.parametrize("path", sorted((CONF / "ops").glob("*.yaml")) + sorted((CONF / "operators").glob("*.yaml")))
def test_a_file_says_when_to_choose_it(path: Path) -> None:
    first, second = path.read_text().splitlines()[:2]
    assert first == "# @package _global_"
    assert re.fullmatch(r"# \S.{20,}", second)
    assert len(second) <= 120


def test_operators_come_in_written_order(composed: Compose) -> None:
    assert list(composed("ops=[sinh,mul,exp]")["ops"]) == ["sinh", "mul", "exp"]


def test_a_parameter_on_the_command_line_wins_over_file_and_preset(composed: Compose) -> None:
    assert operators(composed("operators.sine.k=3"))["sine"].scale == 3.0
    assert operators(composed("operators=fastonn", "operators.sine.k=3"))["sine"].scale == 3.0
    assert operators(composed("ops=[sine,exp]", "operators.exp.omega=2"))["exp"].omega == 2


def test_a_wrong_parameter_is_named(composed: Compose) -> None:
    config = composed("operators.sine.k=-3")
    with pytest.raises(Exception, match="k of the operator Sine must be a finite number above 0, not -3") as caught:
        operators(config)
    assert isinstance(caught.value.__cause__, ConfigError)


def formula(name: str, w: float, x: float, preset: str) -> float:
    """The two preset columns of the table of operators."""
    z = w * x
    clip = lambda value: min(max(value, -10.0), 10.0)  # noqa: E731
    fast = preset == "fastonn"
    k = {"cubic": 100.0, "sine": 100.0, "sinh": 0.1, "sinc": 1000.0, "chirp": 10000.0}.get(name, 1.0) if fast else 1.0
    a = 0.01 if fast else 1.0
    if preset == "gop" and name in ("exp", "quadratic", "gaussian", "dog"):
        return {
            "exp": math.exp(clip(z)) - 1,
            "quadratic": (w * clip(x)) ** 2,
            "gaussian": w * math.exp(-clip(w * x * x)),
            "dog": z * math.exp(-clip(w * x * x)),
        }[name]
    return {
        "mul": lambda: z,
        "cubic": lambda: k * w * x**3,
        "quadratic": lambda: w * x**2,
        "sine": lambda: math.sin(k * z),
        "exp": lambda: math.exp(z) - 1,
        "sinh": lambda: math.sinh(k * z),
        "sinc": lambda: a * (math.sin(k * z) / z if z else k),
        "chirp": lambda: math.sin(k * w * x * x),
        "gaussian": lambda: w * math.exp(-(z**2)),
        "dog": lambda: z * math.exp(-(z**2)),
        "log": lambda: w * math.log(max(math.cosh(1) + math.sinh(1) * x, 1e-3)),
    }[name]()


@pytest.mark.parametrize("preset", ["fastonn", "gop"])
def test_presets_equal_the_published_formulas(preset: str, composed: Compose) -> None:
    config = composed(f"ops=[{','.join(FILES)}]", f"operators={preset}")
    assert config["initialisation"] == preset
    grid = [-14.0, -1.31, -1.0, -0.3, -0.004, 0.0, 0.02, 0.11, 0.9, 1.0, 3.0, 14.0]
    w, x = torch.tensor(grid, dtype=torch.float64)[:, None], torch.tensor(grid, dtype=torch.float64)
    for name, nodal in operators(config).items():
        expected = torch.tensor([[formula(name, a, b, preset) for b in grid] for a in grid], dtype=torch.float64)
        # rounding of the argument of sin, up to K w x^2 = 3e7 for FastONN's chirp: 3e7 * 1e-16 * a few
        torch.testing.assert_close(nodal(w, x), expected, rtol=1e-10, atol=2e-8 if name == "chirp" else 1e-12)


@pytest.mark.parametrize("preset", ["fastonn", "gop"])
def test_what_a_preset_lacks_stays_as_by_default(preset: str, composed: Compose) -> None:
    names = {
        "fastonn": ["quadratic", "gaussian", "dog", "mul", "exp", "log"],
        "gop": ["cubic", "sinh", "sinc", "chirp", "log"],
    }
    chosen = f"ops=[{','.join(names[preset])}]"
    assert operators(composed(chosen, f"operators={preset}")) == operators(composed(chosen))


def test_a_preset_leaves_operators_that_are_not_chosen_out_of_the_run(composed: Compose) -> None:
    assert list(composed("operators=fastonn")["ops"]) == ["sine"]


MINE = """# @package _global_
# A user's operator
operators:
  mine:
    _target_: my_operators.Mine
    gain: 1.0
ops:
  mine: ${operators.mine}
"""
CLASS = """
from dataclasses import dataclass
from onn_runner.ops import Nodal

@dataclass(frozen=True, kw_only=True)
class Mine(Nodal):
    gain: float = 1.0

    def __call__(self, w, x):
        return self.gain * w * x.abs()

def plain(w, x):
    return w * x.abs()
"""


def test_a_users_operator_is_one_file_and_one_yaml(
    composed: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine" / "ops" / "mine.yaml").write_text(MINE)
    (tmp_path / "my_operators.py").write_text(CLASS)
    monkeypatch.syspath_prepend(tmp_path)
    for overrides in (("operators=default",), ("operators=gop",)):
        config = composed("ops=[sine,mine]", "operators.mine.gain=3", *overrides)
        mine = operators(config)["mine"]
        assert mine(torch.tensor(2.0), torch.tensor(-5.0)).item() == 30.0
    function = (tmp_path / "mine" / "ops" / "mine.yaml").read_text()
    function = function.replace("my_operators.Mine", "my_operators.plain").replace("gain: 1.0", "_partial_: true")
    (tmp_path / "mine" / "ops" / "mine.yaml").write_text(function)
    mine = as_nodal(operators(composed("ops=[mine]"))["mine"])
    assert mine(torch.tensor(2.0), torch.tensor(-5.0)).item() == 10.0
