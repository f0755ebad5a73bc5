"""What an earlier start of a sweep left of a job: nothing, something to go on with, a result, or something else."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from omegaconf import DictConfig, OmegaConf

from onn_runner import plain
from onn_runner.cli import job as jobs
from onn_runner.code_version import code_version
from onn_runner.errors import ConfigError
from onn_runner.report.folder import RunFolder

State = Literal["new", "half", "finished", "failed", "other"]
"""`half`: goes on from its checkpoints; `other`: of another config, code or data."""
UNCOMPARED = ("name", "trainer.workers", "trainer.pictures")
"""Keys that change no number."""


@dataclass(frozen=True)
class Standing:
    state: State
    reason: str = ""
    """Why it is `other`: "its code was 0.1.0+..."."""


def standing(folder: Path, record: jobs.Record | None, config: DictConfig, request: Any) -> Standing:
    """`config`: the job's, composed now. Raises ConfigError where the config cannot be resolved."""
    if record is None:
        return Standing("new")
    if (folder / "run.json").is_file():
        reason = _difference(folder, config, request)
        if reason:
            return Standing("other", reason)
    if record.status in (jobs.FINISHED, jobs.PRUNED):
        return _with_results(folder)
    if record.status == jobs.FAILED:
        return Standing("failed")
    return Standing("half" if (folder / "run.json").is_file() else "new")


def _with_results(folder: Path) -> Standing:
    """Of a finished job: where its results are gone or damaged they are made again from its folds."""
    try:
        whole = plain.read_json(folder / "results.json")["status"] in ("done", "diverged", "pruned")
    except (OSError, ValueError, LookupError, TypeError):
        whole = False
    if whole:
        return Standing("finished")
    return Standing("half") if (folder / "run.json").is_file() else Standing("other", "it has no results")


def _difference(folder: Path, config: DictConfig, request: Any) -> str:
    """What the stored run differs in from the one that `config` would be; "" for nothing."""
    from onn_runner import experiment
    from onn_runner.resumption import flat

    config = copy.deepcopy(config)
    experiment.drop_idle_keys(config, request)
    mine = experiment.stored_config(
        experiment.with_monitor(experiment.plain_config(config)),
        with_operators=experiment.uses_operators(config),
    )
    try:
        record = RunFolder(folder).read_record()
        stored = plain.read_yaml(folder / "config.yaml")
        fingerprint = plain.read_json(folder / "split.json")["fingerprint"]
    except (ConfigError, LookupError, TypeError) as error:
        return f"its records cannot be read ({' '.join(str(error).split())})"
    if not isinstance(stored, dict):
        return "its config.yaml is damaged"
    # Through yaml once, as the stored one: tuples are lists there.
    now, then = flat(yaml.safe_load(yaml.safe_dump(mine))), flat(stored)
    changed = [key for key in {**then, **now} if then.get(key, "-") != now.get(key, "-") and key not in UNCOMPARED]
    if changed:
        return "its " + ", ".join(f"{key} was {then.get(key, 'absent')}" for key in changed[:3])
    codes = [record.get("code"), *(entry.get("code") for entry in _entries(record))]
    code = code_version(mine)
    if any(one != code for one in codes):
        return f"its code was {next(one for one in codes if one != code)}, now it is {code}"
    if fingerprint != _fingerprint(json.dumps(mine["data"], sort_keys=True, default=str)):
        return "its data was other data"
    return ""


def _entries(record: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [entry for entry in record.get("resumed", []) if isinstance(entry, dict)]


@functools.lru_cache(maxsize=8)
def _fingerprint(data: str) -> str:
    """Of the data of a plain config's node, as JSON; read once a process."""
    from onn_runner.construct import make

    node = OmegaConf.create({"data": json.loads(data)}).data
    fingerprint: str = make(node, "data").fingerprint()
    return fingerprint
