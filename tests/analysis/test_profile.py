"""`onn profile`: tables, files and pictures of a network, of a run, of two side by side; what it refuses."""

import csv
import json

import pytest
from typer.testing import CliRunner

from onn_runner.cli.onn import app
from onn_runner.errors import ConfigError

TINY = ("data.photographs=[camera,coins,moon,page]", "data.patches=6", "data.patch=24", "data.max_side=96",
        "network.channels=[3]")  # fmt: skip


def onn(*words):
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refusal(*words):
    with pytest.raises(ConfigError) as caught:
        CliRunner().invoke(app, list(words), catch_exceptions=False)
    return str(caught.value)


def test_two_kinds_of_neurons_side_by_side(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("profile", "model=self_onn", *TINY, "--against", "conv", "--sizes", "16,24x32")
    text = onn(*words, "--repeats", "1", "--batch", "2", "--device", "cpu", "--output", "costs")
    assert "Side by side" in text
    assert (tmp_path / "costs" / "profile.png").read_bytes().startswith(b"\x89PNG")
    plain = json.loads((tmp_path / "costs" / "profile.json").read_text())
    ours, theirs = plain["networks"]
    assert (ours["name"], theirs["name"]) == ("self_onn", "conv")
    assert [one["size"] for one in ours["sizes"]] == [[16, 16], [24, 24], [24, 32]]
    hidden = [one["own"]["layers"][0]["cost"]["computed_macs"] for one in (ours, theirs)]
    assert hidden == [3 * 24 * 24 * 3 * 9, 24 * 24 * 3 * 9]
    with (tmp_path / "costs" / "profile.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 2 * (2 + 3)
    totals = {row["input"]: int(row["kept"]) for row in rows if row["layer"] == "total" and row["network"] == "conv"}
    assert totals["16x16"] < totals["24x24"] < totals["24x32"]


def test_a_run_folder_stands_for_its_command_and_may_be_changed(finished):
    text = onn("profile", str(finished), "network.channels=[5]", "--sizes", "24", "--repeats", "1")
    assert "5x24x24" in text
    other = ("--against", "model.q=2")
    text = onn("profile", str(finished), "--sizes", "24", "--repeats", "1", *other)
    assert "self_onn, as given" in text
    assert "self_onn, model.q=2" in text


def test_a_size_that_a_network_does_not_take_is_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = onn("profile", "model=conv", *TINY, "network.kernels=9", "network.padding_mode=circular", "--sizes", "2",
               "--repeats", "1")  # fmt: skip
    assert "conv at 2x2: left out" in text


def test_what_cannot_be_measured_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "neither a run folder (with a run.json) nor key=value" in refusal("profile", "nowhere")
    assert "'4x' is no size" in refusal("profile", *TINY, "--sizes", "16,4x")
    assert "1x2x3 has 3 axes, the data have 2" in refusal("profile", *TINY, "--sizes", "1x2x3")
    assert "--batch (=0)" in refusal("profile", *TINY, "--batch", "0")
    assert "model" in refusal("profile", "model=cnov")
    assert "baseline=conv is the model itself" in refusal("profile", "model=conv", *TINY, "--against", "conv")
    assert "asks for several runs" in refusal("profile", "-cd", str(tmp_path), "model=glob(*)")
