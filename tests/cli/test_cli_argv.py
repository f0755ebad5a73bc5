"""The meaning of what is typed, case by case."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from onn_runner.cli import argv
from onn_runner.errors import ConfigError

PLAIN = [
    ("ops=sine,exp", ("ops=[sine,exp]",)),
    ("ops=[sine,exp]", ("ops=[sine,exp]",)),
    ("ops=sine", ("ops=sine",)),
    ("ops=sine,sine,exp", ("ops=[sine,exp]",)),
    ("ops=[sine,sine]", ("ops=[sine]",)),
    ("metric=psnr,ssim", ("metric=[psnr,ssim]",)),
    ("operators.exp.omega=3", ("++operators.exp.omega=3",)),
    ("++operators.exp.omega=3", ("++operators.exp.omega=3",)),
    ("ops.exp.omega=3", ("++operators.exp.omega=3",)),
    ("scheduler=null", ("~scheduler",)),
    ("seed=0", ("seed=0",)),
    ("network.channels=[8,8]", ("network.channels=[8,8]",)),
    ("model.layers=[[sine,exp],[mul]]", ("model.layers=[[sine,exp],[mul]]",)),
    ("data.path=/a/b", ("data.path=/a/b",)),
    ("data.path=null", ("data.path=null",)),
    ("data.path=/a b(=1)", ("data.path='/a b(=1)'",)),
    ("data.path=~no one", ("data.path='~no one'",)),
    ("data.path=/a,b", ("data.path='/a,b'",)),
    ("data.path='/a b'", ("data.path='/a b'",)),
    ("data.path=${oc.env:HOME}/x", ("data.path=${oc.env:HOME}/x",)),
]

SWEEPS = [
    ("ops=sine,exp", "ops=sine,exp"),
    ("ops=[sine,exp],[exp]", "ops=[sine,exp],[exp]"),
    ("ops=[sine,sine],[exp]", "ops=[sine],[exp]"),
    ("ops=glob(*)", "ops=glob(*)"),
    ("ops=[sine,exp]", "ops=[sine,exp]"),
    ("seed=1,2", "seed=1,2"),
    ("seed=range(3)", "seed=range(3)"),
    ("operators.sine.omega=1,2", "++operators.sine.omega=1,2"),
    ("data.path=a,b", "data.path=a,b"),
]


@pytest.mark.parametrize(("typed", "meant"), PLAIN)
def test_a_plain_run(typed: str, meant: tuple[str, ...]) -> None:
    assert argv.read([typed]).overrides == meant


@pytest.mark.parametrize(("typed", "meant"), SWEEPS)
def test_a_sweep(typed: str, meant: str) -> None:
    command = argv.read(["-m", typed])
    assert command.multirun
    assert command.overrides == (meant,)


@pytest.mark.parametrize("flag", ["--multirun", "hydra.mode=MULTIRUN", "--multi"])
def test_the_other_ways_to_ask_for_a_sweep(flag: str) -> None:
    command = argv.read(["ops=sine,exp", flag])
    assert command.multirun
    assert "ops=sine,exp" in command.overrides


def test_normalising_twice_changes_nothing() -> None:
    typed = [text for text, _ in PLAIN]
    once = argv.read(typed).overrides
    assert argv.read(once).overrides == once


def test_flags_may_stand_anywhere(mine: Path) -> None:
    command = argv.read(["ops=sine", "-m", "seed=1,2", "--config-dir", str(mine), "trainer.epochs=3"])
    assert command.multirun
    assert command.overrides == ("ops=sine", "seed=1,2", "trainer.epochs=3")
    assert command.folders[-1] == mine
    assert command.composing_flags == (f"--config-dir={mine}",)


def test_info_does_not_swallow_an_override() -> None:
    command = argv.read(["--info", "ops=sine"])
    assert command.flags.info == "all"
    assert command.overrides == ("ops=sine",)


@pytest.mark.parametrize(
    ("typed", "noted"),
    [
        ("ops=sine,exp", "ops=sine,exp: one run with ops=[sine,exp]; add -m for one run each"),
        ("ops=[exp,exp]", "ops=[exp,exp]: exp given more than once; counted once"),
    ],
)
def test_what_is_reinterpreted_is_said(typed: str, noted: str) -> None:
    notes: list[str] = []
    argv.read([typed], notes.append)
    assert notes == [noted]


REFUSED = [
    (["ops=[]"], "ops=[]: name at least one operator"),
    (["ops=null"], "ops=null: name at least one operator"),
    (["~ops"], "~ops: name at least one operator"),
    (["metric=[]"], "name at least one metric"),
    (["-m", "ops=[sine],[]"], "name at least one operator"),
    (["ops=glob(*)"], "ops=glob(*) asks for several runs: add -m"),
    (["ops=[a,b],[c]"], "ops=[a,b],[c] asks for several runs: add -m"),
    (["seed=1,2"], "or write seed=[1,2] for one list"),
    (["seed="], "seed= has no value: write seed=VALUE"),
    (["seed"], "'seed' is not key=value"),
    (["ops=[sine"], "cannot read 'ops=[sine': it ends or breaks at '[sine'"),
    (["a.b=(x"], "cannot read 'a.b=(x': unexpected '('"),
    (["--foo"], "unknown flag '--foo'"),
    (["--mutlirun"], "Did you mean --multirun"),
    (["--config-dir"], "expected one argument"),
    (["--config-dir", "/no/such/folder"], "--config-dir /no/such/folder: there is no such folder"),
    (["--config-path", "/no/such/folder"], "--config-path /no/such/folder: there is no such folder"),
    (["--cfg", "jobs"], "invalid choice: 'jobs'"),
    (["--cfg", "job", "-m"], "--cfg shows the config of one run"),
    (["--info", "-m"], "--info shows the config of one run"),
    (["--resolve"], "--resolve goes with --cfg"),
    (["--experimental-rerun", "x"], "--experimental-rerun is not offered"),
    (["-m", "resume=x"], "resume= goes on with one run: leave out -m"),
]


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_what_cannot_be_meant_is_refused(typed: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        argv.read(typed)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["plain", "a=b", "a b", "(x)", "~x", "a,b", "it's", "${x}", "é", "[x]", "a\\b", '"q"'])
def test_resume_takes_any_path(name: str, tmp_path: Path) -> None:
    assert argv.read([f"resume={tmp_path}/{name}"]).resume == tmp_path / name


def test_resume_is_relative_to_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert argv.read(["resume=out"]).resume == tmp_path / "out"
    assert argv.read(["resume=~/out"]).resume == tmp_path / "home" / "out"
    assert argv.read(["resume=null"]).resume is None


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1))
def test_a_quoted_value_means_itself(value: str) -> None:
    # A backslash before "${" would need OmegaConf's own escapes; no path has one.
    value = value.replace("\\${", "${")
    read = argv.parse(f"key={argv.quote(value)}").value()
    assert OmegaConf.create({"key": read}).key == value


def test_new_overrides_replace_stored_ones() -> None:
    stored = ("ops=[sine]", "++operators.sine.omega=2", "trainer.epochs=3", "seed=1")
    assert argv.merge(stored, ("trainer.epochs=9", "operators.sine.omega=1")) == (
        "ops=[sine]",
        "seed=1",
        "trainer.epochs=9",
        "operators.sine.omega=1",
    )
