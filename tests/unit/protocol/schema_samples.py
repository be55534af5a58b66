"""Samples of our schemas' entities, and kio's bytes for them: the oracle of ``protocol.schemas.schema``."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from itertools import count
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin
from uuid import UUID

from kio.serial import entity_writer

from milena.protocol.schemas.schema import Entity

E = TypeVar("E", bound=Entity)

_VALUES: dict[str, Callable[[int], Any]] = {
    "int8": lambda n: n % 128,
    "int16": lambda n: (1_000 + n) % 32_768,
    "uint16": lambda n: (60_000 + n) % 65_536,
    "int32": lambda n: -1_000_000 - n,
    "int64": lambda n: (1 << 40) + n,
    "float64": lambda n: n + 0.25,
    "bool": lambda n: n % 2 == 0,
    "string": lambda n: f"naïve-{n}",
    "bytes": lambda n: bytes(range(n % 256)),
    "uuid": lambda n: UUID(int=(n << 64) + 7),
}


def kio_bytes(entity: Entity) -> bytes:
    """What kio's writer makes of the entity, whose class is in kio's form at its newest version."""
    with io.BytesIO() as out:
        entity_writer(type(entity))(out, entity)  # type: ignore[type-var]
        return out.getvalue()


def sample(schema: type[E], version: int, length: int = 2) -> E:
    """An entity with a value in each field that the version has, ``length`` elements in each array."""
    numbers = count(1)
    return _fill(schema, version, length, numbers, full=True)


def samples(schema: type[E], version: int) -> Iterator[E]:
    """Entities with full fields, with long and empty arrays, and with every field at its default or null."""
    for length in (1, 2, 0, 200):
        yield sample(schema, version, length)
    yield _fill(schema, version, 1, count(1), full=False)


def _fill(schema: type[E], version: int, length: int, numbers: Iterator[int], *, full: bool) -> E:
    values = {}
    for spec in fields(schema):
        if spec.metadata.get("since", 0) <= version <= spec.metadata.get("until", version):
            value = _value(spec, version, length, numbers, full)
            if value is not MISSING:
                values[spec.name] = value
    return schema(**values)


def _value(spec: Field[Any], version: int, length: int, numbers: Iterator[int], full: bool) -> Any:
    if not full and spec.default is not MISSING:
        return MISSING
    annotation: Any = spec.type
    if isinstance(annotation, UnionType):
        if not full:
            return None
        (annotation,) = (choice for choice in get_args(annotation) if choice is not NoneType)
    if get_origin(annotation) is tuple:
        return tuple(_element(spec, get_args(annotation)[0], version, length, numbers, full) for _ in range(length))
    return _element(spec, annotation, version, length, numbers, full)


def _element(spec: Field[Any], annotation: Any, version: int, length: int, numbers: Iterator[int], full: bool) -> Any:
    kind = spec.metadata.get("kafka_type")
    if kind is None:
        return _fill(annotation, version, length, numbers, full=full)
    return _VALUES[kind](next(numbers))
