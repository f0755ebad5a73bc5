"""A stranger's run folder is data: opened or gone on with, nothing in it is called, nothing is written elsewhere."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from onn_runner.trainer import checkpoint

Spoil = Callable[[Path], Any]


def changed_json(file: str, **changes: object) -> Spoil:
    def spoil(run: Path) -> None:
        content = json.loads((run / file).read_text())
        (run / file).write_text(json.dumps({**content, **changes}))

    return spoil


def changed_fold(**changes: object) -> Spoil:
    def spoil(run: Path) -> None:
        content = json.loads((run / "split.json").read_text())
        content["folds"][0].update(changes)
        (run / "split.json").write_text(json.dumps(content))

    return spoil


def changed_config(key: str, value: object) -> Spoil:
    def spoil(run: Path) -> None:
        content = yaml.safe_load((run / "config.yaml").read_text())
        node, *inner = key.split(".")
        content[node] = value if not inner else {**content[node], inner[0]: value}
        (run / "config.yaml").write_text(yaml.safe_dump(content))

    return spoil


def text(name: str, content: str | bytes) -> Spoil:
    return lambda run: (run / name).write_bytes(content.encode() if isinstance(content, str) else content)


def link(name: str, to: str = "../../elsewhere") -> Spoil:
    def spoil(run: Path) -> None:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(to)

    return spoil


def pipe(name: str) -> Spoil:
    def spoil(run: Path) -> None:
        (run / name).unlink()
        os.mkfifo(run / name)

    return spoil


RECORDS = {
    "a module of its own": (changed_json("run.json", flags=["--module=evil"]), "add --module evil"),
    "a module with signs": (changed_json("run.json", flags=["--module=\x1b[31mevil"]), "which is no name"),
    "a flag": (changed_json("run.json", flags=["-m"]), "the flag -m, which no run has"),
    "a flag among the overrides": (changed_json("run.json", overrides=["--module=evil"]), "which is a flag"),
    "flags that are none": (changed_json("run.json", flags=5), "flags in run.json is no list"),
    "overrides that are none": (changed_json("run.json", overrides=[[1]]), "must be a list of texts"),
    "another place": (changed_json("run.json", overrides=["hydra.run.dir=/tmp/x"]), "only the command line may"),
    "a search path": (changed_json("run.json", overrides=["hydra.searchpath=[pkg://evil]"]), "only the command line"),
    "a launcher": (changed_json("run.json", overrides=["hydra/launcher=joblib"]), "only the command line may"),
    "the environment": (changed_json("run.json", overrides=["name=${oc.env:HOME}"]), "more than the config"),
    "another run": (changed_json("run.json", overrides=["resume=/etc"]), "which no run has"),
    "a billion threads": (changed_json("run.json", threads=10**9), "threads in run.json must be from 1"),
    "versions that are none": (changed_json("run.json", versions=[]), "versions in run.json is no dict"),
    "resumptions that are none": (changed_json("run.json", resumed=5), "resumed in run.json is no list"),
    "containers in containers": (text("run.json", "[" * 100_000), "in one another"),
    "no text": (text("run.json", b"\xff\xfe\x00"), "cannot be read"),
    "a pipe": (pipe("run.json"), ""),
}


@pytest.mark.parametrize("case", RECORDS)
def test_what_run_json_says_is_not_trusted(box, run, case):
    spoil, part = RECORDS[case]
    spoil(run)
    assert part in box.refused(box.onn_run("resume=run"))
    assert part in box.refused(box.onn("explain", "run"))


def test_every_verb_that_opens_a_run_asks_for_its_modules(box, run):
    changed_json("run.json", flags=["--module=evil"])(run)
    for words in (["reduce", "run"], ["profile", "run"], ["convert", "run"], ["explain", "run", "--against", "run"]):
        assert "add --module evil" in box.refused(box.onn(*words))
    code, printed = box.onn_run("start_from=run", *SAME)
    assert code == 2
    assert "start_from: run was run with code of its own" in printed
    box.unharmed(printed)


SAME = (
    *("model=conv", "network.channels=[2]", "network.kernels=[3,3]", "partition=hold_out", "trainer.pictures=false"),
    *("data.photographs=[camera,coins,moon,page]", "data.patches=2", "data.patch=16", "data.max_side=64"),
)
BOMB = "zz: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"z{chr(98 + level)}: &{chr(98 + level)} [{','.join(['*' + chr(97 + level)] * 10)}]\n" for level in range(9)
)
CONFIGS = {
    "code of its own": (changed_config("network._target_", "evil.Evil"), "--module evil"),
    "a shell": (changed_config("network", {"_target_": "os.system", "command": "true"}), "os.system"),
    "a shell in a list": (changed_config("network.kernels", [{"_target_": "os.system"}]), "network.kernels[0]"),
    "a download": (changed_config("data", {"_target_": "torchvision.datasets.MNIST", "root": "."}), "source of items"),
    "the environment": (changed_config("data.colour", "${oc.env:HOME}"), "must be true or false"),
    "a node that is none": (changed_config("trainer", 5), "trainer (=5) must be the keys"),
    "no metrics": (changed_config("metrics", 5), "metrics (=5) must be the keys"),
    "no computation": (changed_config("compute", None), "compute (=None) must be the keys"),
    "a seed that is none": (changed_config("seed", float("inf")), "seed (=inf)"),
    "a network without end": (changed_config("network.channels", [10**30]), "too large for the memory"),
    "references that grow": (text("config.yaml", BOMB), "more than 1,000,000 values"),
    "an object of Python": (text("config.yaml", "network: !!python/object/apply:os.getcwd []\n"), "constructor"),
    "a list": (text("config.yaml", "[1, 2]\n"), "empty or damaged"),
    "a pipe": (pipe("config.yaml"), "neither a file nor a folder"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_stored_config_is_not_trusted(box, run, case):
    spoil, part = CONFIGS[case]
    spoil(run)
    assert part in box.refused(box.onn("explain", "run"))


SPLITS = {
    "a number below 0": (changed_fold(test=[-1]), "names -1, which is none"),
    "a number beyond": (changed_fold(test=[10**12]), "which is none of the 8 items"),
    "a fraction": (changed_fold(test=[0.5]), "names 0.5"),
    "true": (changed_fold(test=[True]), "names True"),
    "words": (changed_fold(test="abc"), "names a"),
    "an item twice": (changed_fold(test=[0, 0]), "an item twice"),
    "another folder": (changed_fold(index="../../x"), "no numbers of folds"),
    "a huge fold": (changed_fold(index=10**12), "no numbers of folds"),
    "no folds": (changed_json("split.json", folds=[]), "no numbers of folds"),
    "folds that are none": (changed_json("split.json", folds={"a": 1}), "cannot be read"),
    "containers in containers": (text("split.json", "[" * 100_000), "in one another"),
}


@pytest.mark.parametrize("case", SPLITS)
def test_a_stored_split_is_not_trusted(box, run, case):
    spoil, part = SPLITS[case]
    spoil(run)
    assert part in box.refused(box.onn("explain", "run"))


def test_a_spoilt_split_is_told_where_a_run_goes_on_too(box, run):
    changed_fold(test=[10**12])(run)
    assert "which is none of the 8 items" in box.onn_run("resume=run", "trainer.epochs=2")[1]
    box.unharmed("")


@pytest.mark.parametrize("name", ["fold_00", "results.json", ".results.json.partial", ".lock", "fold_00/pictures"])
def test_a_run_with_links_to_elsewhere_is_not_written_into(box, run, name):
    link(name, "../" * (1 + name.count("/")) + "../elsewhere")(run)
    before = sorted(run.rglob("*"))
    assert "is a link to what lies outside" in box.refused(box.onn("explain", "run"))
    code, printed = box.onn_run("resume=run", "trainer.epochs=2")
    assert (code, sorted(run.rglob("*"))) == (2, before), printed
    box.unharmed(printed)


class Payload:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def zipped(payload: Payload, path: Path) -> None:
    torch.save({"format": 2, "network": payload}, path)


def bare(payload: Payload, path: Path) -> None:
    path.write_bytes(pickle.dumps(payload))


def packed(payload: Payload, path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content + bytes(10_000_000 * ("/data/" in name)))


@pytest.mark.parametrize("write", [zipped, bare, packed])
def test_checkpoints_hold_tensors_and_run_nothing(box, run, write):
    for path in [*run.rglob("*.pt"), *run.rglob("*.safetensors")]:
        if path.suffix == ".pt":
            write(Payload(box.touch), path)
        else:
            path.unlink()
    line = box.refused(box.onn("explain", "run"), code=1)
    assert "is damaged" in line
    assert "weights_only" not in line, "torch's advice to run the code after all"
    code, printed = box.onn_run("resume=run", "trainer.epochs=2")
    assert code == 0, "what is damaged is trained anew"
    box.unharmed(printed)


@pytest.mark.parametrize(
    "changes",
    [
        {"threads": "x"},
        {"threads": 10**9},
        {"epoch": -1},
        {"history": [5]},
        {"history": [{"epoch": float("inf")}]},
        {"best": {"val/psnr": 5}},
        {"candidates": {"x": {}}},
        {"format": "x"},
    ],
    ids=str,
)
def test_a_checkpoint_of_others_is_looked_at_field_by_field(run, changes):
    path = run / "fold_00" / "last.pt"
    content = io.BytesIO()
    torch.save(torch.load(path, weights_only=True) | changes, content)
    path.write_bytes(checkpoint.sealed(content))
    with pytest.raises(checkpoint.Damaged, match="is damaged"):
        checkpoint.load(path)


def test_names_in_a_run_do_not_steer_the_terminal(box, run):
    changed_json("results.json", name="\x1b[31mred", warnings=["\x1b[2Jgone", {"a": 1}])(run)
    changed_json("run.json", versions={"torch": "\x1b[31m2"})(run)
    for told in (box.onn("explain", "run"), box.onn_run("resume=run", "trainer.epochs=2")):
        assert told[0] == 0, told[1]
        box.unharmed(told[1])


TAG = "<script>alert(1)</script>\x1b[31m\\input{x}"


def test_the_texts_of_a_run_are_texts_in_its_report(box, run):
    changed_json("results.json", name=TAG, warnings=[TAG])(run)
    changed_json("run.json", command=["onn-run", TAG], overrides=[TAG])(run)
    changed_config("network._target_", TAG)(run)
    (run / "test_items.csv").write_text((run / "test_items.csv").read_text().replace("camera", TAG))
    code, printed = box.onn("report", "run")
    assert code == 0, printed
    box.unharmed(printed)
    written = {path.name: path.read_text(encoding="utf-8") for path in (run / "report").iterdir()}
    assert all("\x1b" not in content for content in written.values())
    assert "<script>alert" not in written["report.html"]
    assert "\\input{" not in written["table.tex"]
    assert box.onn("status", "run")[0] == 0


def test_a_report_goes_into_no_link(box, run):
    (run / "report").symlink_to("../../elsewhere")
    assert "is a link" in box.refused(box.onn("report", "run"))


def test_a_study_of_spoilt_runs_tells_of_them_and_no_more(box, finished):
    every = [*RECORDS.values(), *CONFIGS.values(), *SPLITS.values()]
    for number, (spoil, _) in enumerate(every):
        spoil(Path(shutil.copytree(finished, box.folder / "runs" / f"{number:02d}")))
    for verb in ("status", "report"):
        code, printed = box.onn(verb, "runs")
        assert code == 0, printed
        box.unharmed(printed)
