"""Configuration values are read with the getter of their type: ``config.get_int("log.segment.bytes")``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from milena.config.keys import DYNAMIC_KEYS
from milena.config.values import Type
from tests.architecture.source import modules, tree

GETTERS = {
    "get_int": {Type.INT, Type.LONG, Type.SHORT},
    "get_bool": {Type.BOOLEAN},
    "get_str": {Type.STRING, Type.CLASS, Type.PASSWORD},
    "get_list": {Type.LIST},
}
OR_NONE = "_or_none"


def uses() -> Iterator[tuple[str, str, str]]:
    """Where, by which method, and the key, if it is a constant."""
    for path in modules():
        if path.parts[0] != "milena":
            continue
        for node in ast.walk(tree(path)):
            match node:
                case ast.Call(func=ast.Attribute(attr=getter), args=[ast.Constant(value=str(key))]):
                    if getter.removesuffix(OR_NONE) in GETTERS:
                        yield f"{path}:{node.lineno}", getter, key


def test_each_key_is_asked_for_by_its_type() -> None:
    found = list(uses())
    wrong = [
        f"{place}: {getter}({key!r})"
        for place, getter, key in found
        if key not in DYNAMIC_KEYS
        or DYNAMIC_KEYS[key].type not in GETTERS[getter.removesuffix(OR_NONE)]
        or (getter != "get_list" and (DYNAMIC_KEYS[key].default is None) is not getter.endswith(OR_NONE))
    ]
    assert not wrong, "\n".join(wrong)
    assert len(found) > 60
