"""Kafka's configuration types: conversion between text and value, with Kafka's error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from math import isfinite
from typing import Final, TypeAlias

from milena.runtime.numbers import double, trimmed, whole

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class ConfigError(ValueError):
    """An invalid configuration; the message names the key and its source."""


class Type(Enum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOUNDS: Final = {Type.SHORT: 1 << 15, Type.INT: 1 << 31, Type.LONG: 1 << 63}
MAX_INT: Final = (1 << 31) - 1
MAX_LONG: Final = (1 << 63) - 1
COMMA: Final = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
"""Java's ``\\s*,\\s*``, which knows no other blanks."""


def number(values: Mapping[str, Value], name: str) -> int:
    """Return the value of a key of type INT or LONG with a default. Raises TypeError for other keys."""
    value = values[name]
    if not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}, not a number")
    return value


def invalid(name: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {why}")


def parse(name: str, text: str, kind: Type) -> Value:
    """Return the typed value of ``text``, as ConfigDef.parseType does. Raises ConfigError."""
    bare = trimmed(text)
    match kind:
        case Type.BOOLEAN:
            if bare.upper() not in ("TRUE", "FALSE"):
                raise invalid(name, text, "Expected value to be either true or false")
            return bare.upper() == "TRUE"
        case Type.INT | Type.SHORT | Type.LONG:
            bound, number = BOUNDS[kind], whole(bare)
            if number is None or not -bound <= number < bound:
                raise invalid(name, text, f"Not a number of type {kind.name}")
            return number
        case Type.DOUBLE:
            decimal = double(bare)
            if decimal is None:
                raise invalid(name, text, "Not a number of type DOUBLE")
            return decimal
        case Type.LIST:
            return tuple(COMMA.split(bare)) if bare else ()
        case Type.STRING | Type.CLASS | Type.PASSWORD:
            return bare


def render(value: Value) -> str | None:
    """Return the text of a value as Kafka's tools print it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case float():
            return render_double(value)
        case _:
            return str(value)


def render_double(value: float) -> str:
    """Format like Java: at least one decimal, an exponent from 10^7 on and below 10^-3."""
    if not isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    tail = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{tail}E{len(digits) - 1 + exponent}"
