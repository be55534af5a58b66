"""Random values of kio's classes, in kio's own types, and kio's bytes of them."""

from __future__ import annotations

import dataclasses
import io
import random
from datetime import UTC, datetime, timedelta
from importlib import import_module
from types import UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from protocol.api_keys import ApiKey

_INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def sample(cls: type[Any], rnd: random.Random) -> Any:
    """An instance of a kio class with random values, defaults and nulls."""
    return cls(**{field.name: _field(field, rnd) for field in dataclasses.fields(cls)})


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def _field(field: Any, rnd: random.Random) -> Any:
    if field.default is not dataclasses.MISSING and rnd.random() < 0.3:
        return field.default
    return _value(field.type, field.metadata.get("kafka_type", ""), rnd, tagged="tag" in field.metadata)


def _value(annotation: Any, kafka_type: str, rnd: random.Random, *, tagged: bool = False) -> Any:
    if get_origin(annotation) is UnionType:
        inner = next(member for member in get_args(annotation) if member is not type(None))
        # kio cannot write null in a tagged field, and takes the zero UUID for None.
        if rnd.random() < 0.25 and not tagged and kafka_type != "uuid":
            return None
        return _value(inner, kafka_type, rnd)
    if get_origin(annotation) is tuple:
        element = get_args(annotation)[0]
        return tuple(_value(element, kafka_type, rnd) for _ in range(rnd.choice([0, 1, 1, 2, 3])))
    if dataclasses.is_dataclass(annotation):
        assert isinstance(annotation, type)
        return sample(annotation, rnd)
    return _primitive(kafka_type, rnd)


def _primitive(kafka_type: str, rnd: random.Random) -> Any:
    if kafka_type in _INTS:
        top = 2 ** (_INTS[kafka_type] - 1)
        return rnd.choice([0, 1, -1, top - 1, -top, rnd.randrange(-top, top)])
    match kafka_type:
        case "uint16":
            return rnd.randrange(65536)
        case "bool":
            return rnd.random() < 0.5
        case "float64":
            return rnd.uniform(-1e9, 1e9)
        case "string":
            return rnd.choice(["", "a", "Grüße, 世界", "x" * 127, "y" * 300])
        case "bytes" | "records":
            return rnd.randbytes(rnd.choice([0, 1, 126, 127, 128, 16383]))
        case "uuid":
            return UUID(int=rnd.getrandbits(128) | 1)
        case "error_code":
            return rnd.choice(list(ErrorCode))
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=rnd.choice([0, 1, 999, 2**31 - 1, -1]))
        case "datetime_i64":
            return datetime.fromtimestamp(rnd.randrange(2**31), tz=UTC)
    raise AssertionError(kafka_type)


def kio_class(key: ApiKey, version: int, kind: str) -> Any:
    """kio's class of a message; ``kind`` is request or response."""
    module = import_module(f"kio.schema.{key.name.lower()}.v{version}")
    return next(getattr(module, name) for name in module.__all__ if name.lower().endswith(kind))
