"""Schemas of versioned data in logs and in opaque bytes: keys and values of records, subscriptions.

A schema is a frozen dataclass like those of kio, with the fields of all versions (``protocol.schemas.structs`` has the
codec); ``since`` and ``until`` in a field's metadata are the first and last version that has the field. A field that a
version lacks is omitted when written, and has its default when read. Unknown tagged fields are skipped.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar, Final, NoReturn, TypeVar, dataclass_transform

from milena.protocol.schemas.primitives import Data, Reader, Writer
from milena.protocol.schemas.structs import Layout, StructCodec, codec
from milena.protocol.schemas.undecodable import DecodeError

INT8: Final = {"kafka_type": "int8"}
INT16: Final = {"kafka_type": "int16"}
UINT16: Final = {"kafka_type": "uint16"}
INT32: Final = {"kafka_type": "int32"}
INT64: Final = {"kafka_type": "int64"}
FLOAT64: Final = {"kafka_type": "float64"}
BOOL: Final = {"kafka_type": "bool"}
STRING: Final = {"kafka_type": "string"}
BYTES: Final = {"kafka_type": "bytes"}
UUID_TYPE: Final = {"kafka_type": "uuid"}


class Entity:
    """The base class of schemas; ``@versioned`` makes them dataclasses.

    The methods that dataclasses would generate for each class are defined here once. Generating them would add 10 ms to
    the start of a node.
    """

    __slots__: tuple[str, ...] = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _defaults: ClassVar[dict[str, object]] = {}

    __version__: ClassVar[int] = 0
    """The newest version."""
    __flexible__: ClassVar[bool] = True
    """Whether the newest version is flexible (compact lengths, tagged fields)."""
    FLEXIBLE_SINCE: ClassVar[int] = 0
    """The first flexible version."""

    def __init__(self, **values: object) -> None:
        for name, default in self._defaults.items():
            value = values.pop(name, default)
            if value is MISSING:
                raise TypeError(f"{type(self).__name__} needs {name}")
            object.__setattr__(self, name, value)
        if values:
            raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in self._defaults)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self._defaults)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._defaults)})"


E = TypeVar("E", bound=Entity)


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(field,))
def versioned(schema: type[E]) -> type[E]:
    """Class decorator: make a frozen, slotted dataclass with keyword-only fields."""
    cls = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(schema)
    cls._defaults = {spec.name: spec.default for spec in fields(cls)}
    return cls


def encode(entity: Entity, version: int) -> bytes:
    """Encode the entity in ``version``. Raises struct.error or ValueError if a value is out of its type's range."""
    out = Writer()
    encode_into(out, entity, version)
    return bytes(out)


def encode_into(out: Writer, entity: Entity, version: int) -> None:
    """Append the encoded entity to ``out``. Raises as ``encode``."""
    _codec_for(type(entity), version).write(out, entity)


def decode(schema: type[E], version: int, data: Data) -> E:
    """Decode an entity. Raises DecodeError for damaged bytes, or bytes after the entity."""
    reader = Reader(data)
    entity = decode_from(reader, schema, version)
    reader.expect_end()
    return entity


def decode_from(reader: Reader, schema: type[E], version: int) -> E:
    """Decode an entity from the next bytes of ``reader``. Raises DecodeError."""
    entity: E = _codec_for(schema, version).read(reader)
    return entity


def _codec_for(schema: type[Entity], version: int) -> StructCodec:
    if not 0 <= version <= schema.__version__:
        raise DecodeError(f"{schema.__name__} has versions 0 to {schema.__version__}, not {version}")
    form: Any = schema
    return codec(form, Layout(version >= schema.FLEXIBLE_SINCE, version))
