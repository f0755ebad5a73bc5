"""The text of `onn-run --help`: what it is, the groups with their options, keys, examples."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from onn_runner.cli.catalogue import LABELS, Catalogue, config_folder, user_folder

WIDTH = 100
FIRST = ("model", "ops", "data", "network", "partition", "metric", "trainer")
"""The groups that a newcomer needs, in this order; the others follow by name."""

HEAD = """\
onn-run trains and cross-validates one network, from one command.

  onn-run model=onn ops=sine,exp data=denoise

usage: onn-run [FLAG ...] [GROUP=OPTION ...] [KEY=VALUE ...]

GROUPS: choose one option of each; ops, metric and experiment take several ("onn list" says when to choose which)
"""

TAIL = """
KEYS: every value of the composed config ("onn-run --cfg job" shows all; "onn list data denoise",
"onn list trainer default", ... say what they mean)
  trainer.epochs=30 trainer.starts=3 trainer.device=cpu trainer.monitor=val/psnr
  partition.folds=5 partition.seed=1 data.path=photos/ data.sigma=15 seed=1
  network.channels=[16,16] network.kernels=[3,3,3] model.pool=median model.layers=[[sine,exp],[mul]]
  operators.sine.omega=3       a parameter of an operator
  +KEY=VALUE adds a key that is not there, ~KEY removes one, null means none

EXAMPLES
  onn-run                                        the default: operational neurons, sine, denoising
  onn-run model=onn ops=sine,exp                 one run with the operator set {sine, exp}
  onn-run model=conv network.channels=[24,24]    the same network of ordinary neurons
  onn-run baseline=conv network.match=params     its convolutional twin of the same size as well, paired
  onn-run experiment=onn_denoise                 a published recipe ("onn list experiments")
  onn-run dry_run=true ops=sine,exp              layers, parameters, folds, estimated time; no training
  onn-run -m ops=sine,exp seed=0,1               a sweep: four runs in multirun/<name>/
  onn-run -m 'ops=[sine,exp],[exp]'              a sweep over two operator sets
  onn-run -m 'ops=glob(*)'                       one run for every operator
  onn-run resume=outputs/NAME/TIME-STAMP         go on with an interrupted run
  onn-run --config-dir mine --module my_ops ops=[sine,mine]
                                                 an operator of your own: mine/ops/mine.yaml and my_ops.py

  Sweeps run one job after another; sweep=joblib, submitit_local, slurm or ray runs several at once, sweep=optuna
  searches (extras: pip install 'onn-runner[joblib]', submitit, ray, sweep). The same command again goes on with a
  sweep: finished jobs stay, stopped ones are resumed, sweep.retry_failed=true tries failed ones again.
  "onn status FOLDER" shows how far it is, "onn report FOLDER" makes tables and a page of it.

FLAGS
  -h, --help                 this text
  --version                  the version
  -m, --multirun             a sweep: one run for every combination of comma-separated values
  -cd, --config-dir FOLDER   more options: FOLDER/ops/*.yaml, FOLDER/data/*.yaml, ...
  --module NAME[,NAME]       modules of your own that the config may use, in this directory or installed; it imports
                             no others, so that config folders and runs of other people are safe to open
  -c, --cfg job|hydra|all    show the config instead of running; -p KEY a part of it, --resolve with references replaced
  -i, --info                 how the config was composed
  --hydra-help               the flags of Hydra, on which this is built
  eval "$(onn-run -sc install=bash)"    tab completion for this shell (also fish, zsh)

Runs go to outputs/ and sweeps to multirun/ of the current directory.
Exit codes: 0 done, 1 a run failed, 2 the request was refused, 130 interrupted (go on with resume=)."""


def text(typed: Sequence[str]) -> str:
    """The whole help, with the options of a --config-dir in `typed` too."""
    folder = config_dir_in(typed)
    catalogue = Catalogue((config_folder(), *([user_folder(folder)] if folder is not None else [])))
    return "\n".join([HEAD.rstrip(), *group_lines(catalogue), TAIL])


def group_lines(catalogue: Catalogue) -> list[str]:
    """`  model       conv, onn` for each group, wrapped."""
    width = max((len(group) for group in catalogue.groups), default=0)
    lines = []
    order = [*(group for group in FIRST if catalogue.options(group)), *catalogue.groups]
    for group in dict.fromkeys(order):
        options = catalogue.options(group)
        label = f"  {group:<{width}}  "
        names = ", ".join(options)
        if group in LABELS:
            names += f"  ({LABELS[group]})"
        lines.append(textwrap.fill(names, WIDTH, initial_indent=label, subsequent_indent=" " * len(label)))
    return lines


def config_dir_in(words: Sequence[str]) -> str | None:
    """The value of --config-dir, found without Hydra's parser."""
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in ("--config-dir", "-cd"):
            if equals:
                return value
            return words[index + 1] if index + 1 < len(words) else None
    return None
