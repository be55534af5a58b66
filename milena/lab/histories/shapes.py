"""What values a line of a history may have: tests made from the annotations of an event's fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from math import isfinite
from types import UnionType
from typing import Final, TypeAlias, Union, get_args, get_origin, get_type_hints

PLAIN: Final = {int, str, bool}
Test: TypeAlias = Callable[[object], bool]


def tests_of(kind: type) -> dict[str, Test]:
    """For each field, whether a value read from JSON, with tuples for lists, has its type. Enums take any value."""
    return {name: _test(hint) for name, hint in get_type_hints(kind).items()}


def _test(hint: object) -> Test:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        choices = tuple(map(_test, args))
        return lambda value: any(choice(value) for choice in choices)
    if origin is tuple:
        if args[-1] is Ellipsis:
            each = _test(args[0])
            return lambda value: type(value) is tuple and all(map(each, value))
        if set(args) <= PLAIN:
            return lambda value: type(value) is tuple and tuple(map(type, value)) == args
        parts, count = tuple(map(_test, args)), len(args)
        return lambda value: (
            type(value) is tuple
            and len(value) == count
            and all(test(one) for test, one in zip(parts, value, strict=True))
        )
    if origin is Mapping:
        return lambda value: isinstance(value, dict)
    if hint is float:  # JSON as Python reads it has infinity, and what is no number
        return lambda value: (type(value) is float and isfinite(value)) or type(value) is int
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: True
    return lambda value: type(value) is hint
