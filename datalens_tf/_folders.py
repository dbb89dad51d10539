"""Modules of a folder that declare themselves by a constant.

They are read without being run, because the import of TensorFlow takes seconds.
"""

import ast
import functools
import pathlib
import types
from collections.abc import Mapping
from typing import Any, NamedTuple


class Declaration(NamedTuple):
    """A module of the folder that has the constant.

    Attributes:
      summary: the first line of the module's docstring.
      constants: all constants of the module that are literals, by name.
    """

    summary: str
    constants: Mapping[str, Any]


@functools.cache
def declarations(places: tuple[str, ...], constant: str) -> Mapping[str, Declaration]:
    """Modules that assign a literal to the constant, by name in alphabetical order.

    Args:
      places: folders; `tuple(package.__path__)`, which tests and plug-ins may extend.
      constant: its name.

    Raises:
      SyntaxError: a module is not valid Python.
    """
    found = {}
    for path in (path for place in places for path in pathlib.Path(place).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {node.targets[0].id: ast.literal_eval(node.value) for node in tree.body
                     if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
                     and _is_literal(node.value)}
        if constant in constants:
            found[path.stem] = Declaration((ast.get_docstring(tree) or "").partition("\n")[0], constants)
    return types.MappingProxyType(dict(sorted(found.items())))


def _is_literal(node: ast.expr) -> bool:
    """Whether the value of an expression is known without running anything."""
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True
