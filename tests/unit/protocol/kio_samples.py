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
from kio.serial._serialize import get_field_writer
from kio.serial.writers import write_unsigned_varint
from kio.static.primitive import uvarint

from milena.protocol.api_keys import ApiKey
from milena.protocol.schemas.registry import Api

_INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def kio_versions(api: Api) -> list[int]:
    """The versions of an API that kio has: it lacks those that are new in Kafka 4.4."""
    return [version for version in range(api.kafka.min, api.kafka.max + 1) if _has(api.key, version)]


def _has(key: ApiKey, version: int) -> bool:
    try:
        import_module(f"kio.schema.{key.name.lower()}.v{version}")
    except ModuleNotFoundError:
        return False
    return True


def sample(cls: type[Any], rnd: random.Random) -> Any:
    """An instance of a kio class with random values, defaults and nulls."""
    return cls(**{field.name: _field(field, rnd) for field in dataclasses.fields(cls)})


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def noisy_bytes(entity: Any) -> bytes:
    """Like ``kio_bytes`` of a flexible entity, but every struct, however deep, ends with unknown tagged fields."""
    out = io.BytesIO()
    tags: list[tuple[int, bytes]] = [(9_998, b""), (9_999, b"unknown")]
    for field in dataclasses.fields(entity):
        tag, value = field.metadata.get("tag"), getattr(entity, field.name)
        if tag is None:
            out.write(_noisy_field(field, value))
        elif value is not None:
            tags.append((tag, _noisy_field(field, value)))
    write_unsigned_varint(out, uvarint(len(tags)))
    for tag, content in sorted(tags):
        write_unsigned_varint(out, uvarint(tag))
        write_unsigned_varint(out, uvarint(len(content)))
        out.write(content)
    return out.getvalue()


def _noisy_field(field: Any, value: Any) -> bytes:
    out = io.BytesIO()
    if dataclasses.is_dataclass(value):
        if get_origin(field.type) is UnionType:
            out.write(b"\x01")
        out.write(noisy_bytes(value))
    elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
        write_unsigned_varint(out, uvarint(len(value) + 1))
        for item in value:
            out.write(noisy_bytes(item))
    else:
        get_field_writer(field, True, False, "tag" in field.metadata)(out, value)
    return out.getvalue()


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
