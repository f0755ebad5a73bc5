"""The parameters that a `_target_` takes, read from its source: importing it would cost seconds of torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
MAXIMUM_BASES = 8
"""Levels of base classes that are followed."""


def parameters(target: str) -> frozenset[str] | None:
    """Names that the class or function `package.module.Name` takes; None where its source is not found or not clear."""
    module, _, name = target.rpartition(".")
    return _of(module, name, MAXIMUM_BASES)


def _of(module: str, name: str, levels: int) -> frozenset[str] | None:
    tree = _tree(module)
    if tree is None or levels == 0:
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _arguments(node)
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _of_class(node, tree, module, levels)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _of(_absolute(node, module), alias.name, levels - 1)
    return None


def _of_class(node: ast.ClassDef, tree: ast.Module, module: str, levels: int) -> frozenset[str] | None:
    """The arguments of __init__, else the annotated fields, those of the bases included."""
    fields: set[str] = set()
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return _arguments(item)
        annotated = isinstance(item, ast.AnnAssign) and "ClassVar" not in ast.unparse(item.annotation)
        if isinstance(item, ast.AnnAssign) and annotated and isinstance(item.target, ast.Name):
            fields.add(item.target.id)
    for base in node.bases:
        if ast.unparse(base).split("[")[0] in ("object", "Protocol", "Generic", "ABC"):
            continue
        inherited = _of(module, base.id, levels - 1) if isinstance(base, ast.Name) else None
        if inherited is None:
            return None
        fields |= inherited
    return frozenset(fields)


def _arguments(node: ast.FunctionDef) -> frozenset[str] | None:
    if node.args.kwarg is not None:
        return None
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return frozenset(names) - {"self"}


def _absolute(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    return ".".join([*module.split(".")[: -node.level], *([node.module] if node.module else [])])


def _tree(module: str) -> ast.Module | None:
    for path in _candidates(module):
        if path.is_file():
            try:
                return ast.parse(path.read_text(encoding="utf-8"))
            except (OSError, SyntaxError, UnicodeDecodeError):
                return None
    return None


def _candidates(module: str) -> Iterator[Path]:
    parts = module.split(".")
    roots = [PACKAGE.parent] if parts[0] == PACKAGE.name else [Path(entry or ".") for entry in sys.path]
    for root in roots:
        stem = root.joinpath(*parts)
        yield stem.with_name(f"{stem.name}.py")
        yield stem / "__init__.py"
