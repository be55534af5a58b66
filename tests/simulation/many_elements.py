"""Builds requests of every API with many elements in one of their arrays, from the schemas alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from milena.protocol.requests import messages

Path = tuple[str, ...]
"""The names of nested arrays, from the outermost one to the one with many elements."""


class Elements(Enum):
    """Which things the elements of the long array name."""

    KNOWN = "known"
    FRESH = "fresh"
    SAME = "same"


Leaf = Callable[[str, str, int | None], Any]
"""Returns a value for a field: its name, its type, and the number of the element (None outside of the long array)."""

LEFT_EMPTY: Final = frozenset({"assignments", "configs", "configuration_keys", "forgotten_topics_data"})
"""Arrays that stay empty unless they are the long one: with elements they change what the request asks for."""


def array_paths(key: int, version: int) -> list[Path]:
    """The paths of all arrays of a request."""
    return list(_paths(type(messages.build_request(key, version))))


def body(key: int, version: int, path: Path, count: int, leaf: Leaf, numbers: Callable[[int], int]) -> bytes:
    """The encoded request with ``count`` elements in the array at ``path``."""
    return messages.encode_request(key, version, **fields(key, version, path, count, leaf, numbers))


def fields(
    key: int, version: int, path: Path, count: int, leaf: Leaf, numbers: Callable[[int], int], *, below: bool = False
) -> Mapping[str, Any]:
    """The fields of such a request. ``below``: arrays that are not on the path have one element."""
    cls = type(messages.build_request(key, version))
    return _fill(cls, path, count, leaf, numbers, None, below=below)


def _paths(cls: Any) -> Iterator[Path]:
    for field in dataclasses.fields(cls):
        element = _element(field.type)
        if element is not None:
            yield (field.name,)
            if dataclasses.is_dataclass(element):
                for rest in _paths(element):
                    yield (field.name, *rest)


def _fill(
    cls: Any,
    path: Path,
    count: int,
    leaf: Leaf,
    numbers: Callable[[int], int],
    number: int | None,
    *,
    below: bool,
) -> Mapping[str, Any]:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        kind = field.metadata.get("kafka_type", "struct")
        element = _element(field.type)
        inner = _strip_none(field.type)
        if element is None and not dataclasses.is_dataclass(inner):
            values[field.name] = leaf(field.name, kind, number)
        elif element is None:
            if inner is field.type:
                values[field.name] = _fill(inner, (), 0, leaf, numbers, number, below=below)
        else:
            on_path = path[:1] == (field.name,)
            last = on_path and len(path) == 1
            length = count if last else int(on_path or (below and field.name not in LEFT_EMPTY))
            rest = path[1:] if on_path else ()
            values[field.name] = [
                _fill(element, rest, count, leaf, numbers, numbers(at) if last else number, below=below or last)
                if dataclasses.is_dataclass(element)
                else leaf(field.name, kind, numbers(at) if last else number)
                for at in range(length)
            ]
    return values


def _element(annotation: Any) -> Any:
    inner = _strip_none(annotation)
    return get_args(inner)[0] if get_origin(inner) is tuple else None


def _strip_none(annotation: Any) -> Any:
    if get_origin(annotation) in (UnionType, Union):
        (annotation,) = (member for member in get_args(annotation) if member is not type(None))
    return annotation
