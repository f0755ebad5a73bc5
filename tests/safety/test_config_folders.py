"""A stranger's --config-dir is data: nothing in it is imported, called, written elsewhere or read from elsewhere."""

from __future__ import annotations

import pytest

HEAD = "# @package _global_\n# Looks harmless\n"
BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{','.join(['*' + chr(97 + level)] * 10)}]\n" for level in range(9)
)
TARGETS = {
    "a shell": ("network/x.yaml", "# x\n_target_: os.system\ncommand: TOUCH\n", "network=x", "os.system"),
    "a module in the working directory": ("network/x.yaml", "# x\n_target_: evil.Evil\n", "network=x", "--module evil"),
    "inside another node": (
        "data/x.yaml",
        "# x\ndefaults: [denoise]\nnoise:\n  _target_: evil.run\n",
        "data=x",
        "data.noise._target_",
    ),
    "positional, in a list": (
        "optimizer/x.yaml",
        "# x\ndefaults: [adam]\nbetas: [{_target_: os.system, _args_: ['TOUCH']}, 0.9]\n",
        "optimizer=x",
        "optimizer.betas[0]",
    ),
    "through an allowed package": (
        "optimizer/x.yaml",
        "# x\n_target_: torch.optim.optimizer.functools.partial\n_args_: [{_target_: os.system, _partial_: true}]\n",
        "optimizer=x",
        "leads to functools",
    ),
    "a metric": (
        "metric/x.yaml",
        f"{HEAD}metrics: {{x: {{_target_: evil.Evil}}}}\n",
        "metric=[x]",
        "metrics.x._target_",
    ),
}


@pytest.mark.parametrize("case", TARGETS)
def test_a_target_that_is_not_allowed_is_not_even_imported(box, case):
    name, text, word, part = TARGETS[case]
    box.write(f"mine/{name}", text.replace("TOUCH", box.touch))
    line = box.refused(
        box.onn_run("--config-dir=mine", "dry_run=true", "model=conv", "data.photographs=[camera]", word)
    )
    assert part in line


HOW = {
    "callbacks": ("hydra: {callbacks: {a: {_target_: evil.Evil}}}", "hydra.callbacks.a._target_"),
    "a factory of logging": (
        "hydra: {job_logging: {handlers: {x: {'()': evil.Evil}}, root: {handlers: [x], level: INFO}}}",
        "hydra.job_logging.handlers.x",
    ),
    "a class of logging": ("hydra: {hydra_logging: {handlers: {x: {class: evil.Evil}}}}", "hydra.hydra_logging"),
    "the environment": ("hydra: {job: {env_set: {PYTHONSTARTUP: evil.py}}}", "hydra.job.env_set"),
    "the run's folder": ("hydra: {run: {dir: ELSEWHERE}}", "hydra.run.dir"),
    "the sweep's folder": ("hydra: {sweep: {dir: ELSEWHERE}}", "hydra.sweep.dir"),
    "the launcher": ("hydra: {launcher: {_target_: evil.Evil}}", "hydra.launcher._target_"),
    "the sweeper": ("hydra: {sweeper: {_target_: evil.Evil}}", "hydra.sweeper._target_"),
    "an option of a sampler": (
        "defaults: [{override /hydra/sweeper: optuna}]\n"
        "hydra: {sweeper: {sampler_options: {a: {_target_: evil.Evil}}}}",
        "hydra.sweeper.sampler_options.a._target_",
    ),
    "a search's database": (
        "defaults: [{override /hydra/sweeper: optuna}]\nhydra: {sweeper: {storage: 'sqlite:///ELSEWHERE/x.db'}}",
        "hydra.sweeper.storage",
    ),
    "what a sweep varies": (
        "hydra: {sweeper: {params: {'hydra.job.env_set.PATH': 'choice(a,b)'}}}",
        "says how jobs run",
    ),
}


@pytest.mark.parametrize("case", HOW)
def test_a_preset_does_not_say_how_to_run(box, case):
    text, part = HOW[case]
    box.write("mine/experiment/x.yaml", HEAD + text.replace("ELSEWHERE", str(box.elsewhere)) + "\n")
    assert part in box.refused(box.onn_run("--config-dir=mine", "experiment=x", "-m", "seed=1,2"))


def test_a_preset_may_say_how_much_is_used(box):
    text = f"{HEAD}hydra: {{sweeper: {{params: {{seed: 'choice(1,2)'}}, max_batch_size: 2}}}}\n"
    box.write("mine/experiment/x.yaml", text)
    assert box.onn_run("--config-dir=mine", "experiment=x", "--cfg", "job")[0] == 0


FILES = {
    "a search path": ("hydra: {searchpath: ['pkg://evil']}", "sets hydra.searchpath"),
    "the environment": ("name: ${oc.env:HOME}", "${oc.env:HOME} reads more than the config"),
    "the environment, wrapped": ("name: ${oc.decode:'${oc.env:HOME}'}", "reads more than the config"),
    "a resolver by reference": ("name: ${${task.x}:HOME}", "reads more than the config"),
    "references that grow": (BOMB, "more than 1,000,000 values"),
    "a reference to itself": ("a: &a [*a]", "contains itself"),
    "an object of Python": ("name: !!python/object/apply:os.system ['TOUCH']", "could not determine a constructor"),
    "containers in containers": (f"a: {'[' * 500}{']' * 500}", "in one another"),
    "a file above": ("defaults: [{/model/../..: secret}]", "outside the folder"),
    "a huge file": (f"a: {'x' * 5_000_000}", "where at most"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_is_looked_at_before_hydra_reads_it(box, case):
    text, part = FILES[case]
    box.write("secret.yaml", "seed: 1\n")
    box.write("mine/experiment/x.yaml", HEAD + text.replace("TOUCH", box.touch) + "\n")
    assert part in box.refused(box.onn_run("--config-dir=mine", "experiment=x", "dry_run=true"))


@pytest.mark.parametrize(
    ("name", "part"),
    [("../../elsewhere", "without '..'"), ("/tmp/elsewhere", "without '..'"), (r'"a\e[31mb"', "must be a word")],
)
def test_a_name_is_a_folder_below_outputs(box, name, part):
    box.write("mine/experiment/x.yaml", f"{HEAD}name: {name}\ndata: {{photographs: [camera]}}\n")
    assert part in box.refused(box.onn_run("--config-dir=mine", "experiment=x", "model=conv", "dry_run=true"))


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("hydra.searchpath=[pkg://evil]", "imports evil"),
        ("+hydra.callbacks.a._target_=evil.Evil", "--module evil"),
        ("+hydra.callbacks={a: {_target_: evil.Evil}}", "--module evil"),
        ("hydra/launcher=evil", "evil"),
    ],
)
def test_what_is_typed_imports_no_more_than_is_named(box, word, part):
    assert part in box.refused(box.onn_run(word))
