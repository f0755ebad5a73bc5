"""The floors, the mapping rule and the few other rules of how this is built, checked from the source."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from onn_runner.cli import declared
from onn_runner.cli.catalogue import Catalogue, config_folder, first_comment

PACKAGE = Path(__file__).resolve().parent.parent / "onn_runner"
FLOORS = {
    "__init__": 0,
    "checks": 0,
    "code_version": 0,
    "errors": 0,
    "locking": 0,
    "plain": 0,
    "seeding": 0,
    "storage": 0,
    "terminal": 0,
    "data": 1,
    "metric": 1,
    "ops": 1,
    "partition": 1,
    "compute": 2,
    "model": 3,
    "convert": 4,
    "network": 5,
    "analysis": 6,
    "task": 6,
    "report": 7,
    "trainer": 7,
    "study": 8,
    "class_pictures": 8,
    "comparison": 8,
    "construct": 8,
    "crossvalidation": 8,
    "experiment": 8,
    "illustration": 8,
    "kept_items": 8,
    "operator_sets": 8,
    "overview": 8,
    "resumption": 8,
    "session": 8,
    "targets": 8,
    "cli": 9,
}
SAME_PLACE = [
    {
        *("class_pictures", "comparison", "construct", "crossvalidation", "experiment", "illustration"),
        *("kept_items", "operator_sets", "overview", "resumption", "session", "targets"),
    },
    {"checks", "code_version", "errors", "locking", "plain", "seeding", "storage", "terminal", "__init__"},
]
"""Modules of one floor that may import one another."""
ONLY_IN = {
    "hydra": ("construct.py", "experiment.py", "cli/"),
    "jinja2": ("study/page.py",),
    "markupsafe": ("study/page.py",),
    "matplotlib": ("report/figures",),
    "optuna": ("cli/search_parts.py", "cli/search_study.py"),
    "omegaconf": ("construct.py", "experiment.py", "operator_sets.py", "cli/"),
    "triton": ("compute/fused/",),
    "typer": ("cli/",),
}
"""Package -> the places that may import it."""
UNMAPPED = ("operators", "optimizer", "scheduler", "experiment")
"""Groups whose options target something else than the module of the group's name."""
SOURCES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(path: Path) -> Iterator[str]:
    """Every absolute module name that a file imports, also inside functions; `from a import b` gives a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path: Path) -> str:
    """The top-level part of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    here = part_of(path)
    assert here in FLOORS, f"{here} has no floor: add it to FLOORS and to the README's 'How it is built'"
    for module in imports(path):
        first, *rest = module.split(".")
        if first != PACKAGE.name or not rest:
            continue
        there = rest[0] if rest[0] in FLOORS else "__init__"
        together = here == there or any({here, there} <= group for group in SAME_PLACE)
        assert together or FLOORS[there] < FLOORS[here], f"{name_of(path)} (floor {FLOORS[here]}) imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_each_dependency_has_its_place(path: Path) -> None:
    for module in imports(path):
        places = ONLY_IN.get(module.split(".")[0])
        if places is not None:
            assert name_of(path).startswith(places), f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_catches_everything(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ExceptHandler) and not isinstance(node.body[-1], ast.Raise):
            caught = "everything" if node.type is None else ast.unparse(node.type)
            assert caught not in ("everything", "Exception", "BaseException"), f"{name_of(path)}:{node.lineno}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_each_file_says_what_it_computes(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


CATALOGUE = Catalogue((config_folder(),))
OPTIONS = [(group, option) for group, options in CATALOGUE.groups.items() for option in options]


def targets(node: object) -> Iterator[dict[str, object]]:
    """Every mapping below `node` that has a `_target_`."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield node
        for value in node.values():
            yield from targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from targets(value)


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_each_option_says_when_to_choose_it(group: str, option: str) -> None:
    line = first_comment(CATALOGUE.require(group, option))
    assert len(line) > 10, f"conf/{group}/{option}.yaml needs a first comment: `onn list` shows it"
    assert "\n" not in line


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_each_target_exists_and_takes_what_the_option_gives(group: str, option: str) -> None:
    for node in targets(OmegaConf.to_container(OmegaConf.load(CATALOGUE.require(group, option)))):
        target = str(node["_target_"])
        module, _, name = target.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name)), target
        if group not in UNMAPPED:
            assert target.startswith((f"onn_runner.{group}.", "torchmetrics.")), target
        accepted = declared.parameters(target)
        if accepted is not None:
            given = {str(key) for key in node if not str(key).startswith("_") and key != "defaults"}
            assert given <= accepted, f"{target} takes {sorted(accepted)}"


def test_the_default_config_names_options_that_exist() -> None:
    for entry in OmegaConf.load(config_folder() / "config.yaml").defaults:
        if isinstance(entry, str):
            continue
        for group, chosen in entry.items():
            if str(group) == "hydra":
                continue
            for option in [chosen] if isinstance(chosen, str) else chosen or []:
                CATALOGUE.require(str(group).split("@")[0], option)
