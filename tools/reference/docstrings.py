"""The docstrings of fields and members, which Python does not keep: read from the source."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Mapping
from functools import cache


@cache
def _classes(module: str) -> Mapping[str, Mapping[str, str]]:
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return {node.name: _documented(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _documented(node: ast.ClassDef) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for statement, follower in zip(node.body, node.body[1:], strict=False):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                pass
            case _:
                continue
        match follower:
            case ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = text
            case _:
                pass
    return found


def members_of(cls: type) -> Mapping[str, str]:
    """The docstrings under the fields or members of a class, by name."""
    return _classes(cls.__module__).get(cls.__name__, {})
