"""Whatever a file of a run folder says in the place of one value: a report comes of it, or one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from study_examples import write_sweep

from onn_runner.cli.report import found
from onn_runner.errors import ConfigError
from onn_runner.study import tables
from onn_runner.study.gathering import gather
from onn_runner.study.writing import write

JUNK: tuple[Any, ...] = (
    *(None, True, -1, 10**30, 1e308, float("nan"), float("inf"), "", "text", "../..", "\x1b[31m", "0"),
    *([], [1], ["a"], {}, {"a": 1}, [[]], [{}]),
)
FOLDER = "model-onn_seed-0"


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value, containers too."""
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path] * bool(path) + [one for key, value in inside for one in places(value, (*path, key))]


def changed(content: Any, path: tuple[Any, ...], value: Any, *, remove: bool) -> Any:
    *way, last = path
    node = content
    for key in way:
        node = node[key]
    if remove:
        del node[last]
    else:
        node[last] = value
    return content


@pytest.mark.parametrize("name", ["results.json", "split.json", "run.json", "job.json", "config.yaml"])
def test_any_value_may_be_anything(tmp_path: Path, name: str) -> None:
    sweep = write_sweep(tmp_path / "sweep", ("conv", "onn"), (0,), twin="quadratic")
    path = sweep / FOLDER / name
    original = path.read_text(encoding="utf-8")
    read, dump = (yaml.safe_load, yaml.safe_dump) if name.endswith("yaml") else (json.loads, json.dumps)
    where = places(read(original))
    chance = np.random.default_rng(0)
    for number in range(12):
        place = where[chance.integers(len(where))]
        value, remove = JUNK[chance.integers(len(JUNK))], number % 4 == 0
        path.write_text(dump(changed(read(original), place, value, remove=remove)), encoding="utf-8")
        try:
            findings = found(gather([sweep]), None)
            write(tmp_path, findings)
            tables.left_out_table(findings.study)
        except ConfigError:
            continue
        except BaseException as error:
            raise AssertionError(f"{name} with {value!r} at {place}") from error
