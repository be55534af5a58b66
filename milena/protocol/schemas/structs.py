"""The codec of dataclasses in kio's form: requests, responses, and the schemas of ``protocol.schemas.schema``.

Such a class has ``__flexible__`` and, in the metadata of each field, ``kafka_type`` (for primitives) and ``tag``; its
annotations are types, not strings. ``since`` and ``until`` in the metadata are the first and last version with a field,
so that a schema has one class for all versions. kio's own reader is not used: it rejects unknown tagged fields, which
must be skipped (KIP-482), and allocates memory for an unchecked array length, so that a request of ten bytes can end
the process. Its writer is several times slower than this one.

Values are plain: durations and times are integers in milliseconds, error codes are integers, and an optional UUID is
None for Kafka's zero UUID.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Union, get_args, get_origin

from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.schemas.other_versions import is_field_of_some_version
from milena.protocol.schemas.primitives import Reader, Writer, shortened
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import ZERO_UUID

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_STRICT: Final = os.environ.get("MILENA_STRICT_FIELDS") == "1"

Read = Callable[[Reader], object]
Write = Callable[[Writer, Any], None]
Build = Callable[[Any], object]


class Elements(NamedTuple):
    """Functions that read and write an array element by element."""

    begin_read: Callable[[Reader], int | None]
    """Reads the number of elements; None for a null array."""
    begin_write: Callable[[Writer, Any], bool]
    """Writes the number of elements. Returns whether it is above 0."""
    read: Read
    write: Write
    struct: StructCodec | None
    """The codec of elements that contain arrays; None for other elements."""


class Form(NamedTuple):
    """Functions that read and write values of one type, and build them from plain data. ``zero`` is the value of a
    missing field without a default."""

    read: Read
    write: Write
    build: Build
    zero: object
    elements: Elements | None = None


class Field(NamedTuple):
    """One field. ``alias`` is its name in Kafka: kio omits the ``_ms`` of times, and has ``id_`` for ``id``."""

    name: str
    alias: str
    read: Read
    write: Write
    build: Build
    default: object
    elements: Elements | None = None

    def of(self, values: Mapping[str, object]) -> object:
        """Return the field's value in ``values``, by name or alias, or the default."""
        given = values.get(self.name, _MISSING)
        return values.get(self.alias, self.default) if given is _MISSING else given


class Layout(NamedTuple):
    """The version of the encoded bytes; None for a class of one version (kio's)."""

    flexible: bool
    version: int | None = None

    def has(self, definition: dataclasses.Field[object]) -> bool:
        """Whether this version has the field."""
        metadata = definition.metadata
        return self.version is None or metadata.get("since", 0) <= self.version <= metadata.get("until", self.version)


class StructCodec:
    """The codec of a dataclass, or of one version of it; created by ``codec``."""

    __slots__ = ("_cls", "_flexible", "_names", "_plain", "_tag_defaults", "_tag_zeros", "_tagged", "_writes")

    def __init__(self, cls: type[DataclassInstance], layout: Layout) -> None:
        self._cls = cls
        self._flexible = layout.flexible
        plain: list[Field] = []
        tagged: dict[int, Field] = {}
        for definition in dataclasses.fields(cls):
            if not layout.has(definition):
                continue
            field = _field(definition, layout)
            tag = definition.metadata.get("tag")
            if tag is None:
                plain.append(field)
            elif layout.flexible:
                tagged[tag] = field
        self._plain = tuple(plain)
        self._writes = tuple((field.name, field.alias, field.write, field.default) for field in plain)
        self._tagged = dict(sorted(tagged.items()))
        self._tag_defaults = {field.name: field.default for field in tagged.values()}
        self._tag_zeros = {tag: _encoded_default(field) for tag, field in tagged.items()}
        self._names = {name for field in self._fields() for name in (field.name, field.alias)}
        """Names that ``_check`` accepts: those of this version, and those of other versions that it has seen."""

    def read(self, reader: Reader) -> Any:  # noqa: ANN401 - a value of any kio type
        """Read an instance. Unknown tagged fields are skipped. Raises DecodeError."""
        values = {field.name: field.read(reader) for field in self._plain}
        if self._flexible:
            self._read_tags(reader, values)
        return self._cls(**values)

    def read_cooperatively(self, reader: Reader, budget: YieldBudget) -> Cooperative[object]:
        """Like ``read``; yields within arrays."""
        values: dict[str, object] = {}
        for field in self._plain:
            if field.elements is None:
                values[field.name] = field.read(reader)
            else:
                values[field.name] = yield from _read_elements(field.elements, reader, budget)
        if self._flexible:
            self._read_tags(reader, values)
        return self._cls(**values)

    def _read_tags(self, reader: Reader, values: dict[str, object]) -> None:
        values.update(self._tag_defaults)
        for tag, content in reader.tags():
            field = self._tagged.get(tag)
            if field is not None:
                values[field.name] = field.read(content)
                content.expect_end()

    def write(self, writer: Writer, value: object) -> None:
        """Append an instance, or a mapping as for ``build``. Tagged fields with their default value are omitted."""
        if isinstance(value, (dict, Mapping)):
            self._check(value)
            for name, alias, write, default in self._writes:
                given = value.get(name, _MISSING)
                write(writer, value.get(alias, default) if given is _MISSING else given)
        else:
            for name, _, write, _ in self._writes:
                write(writer, getattr(value, name))
        self._end(writer, value)

    def write_cooperatively(self, writer: Writer, value: object, budget: YieldBudget) -> Cooperative[None]:
        """Like ``write``; yields within arrays."""
        if isinstance(value, Mapping):
            self._check(value)
        pick = self._picker(value)
        for field in self._plain:
            if field.elements is None:
                field.write(writer, pick(field))
            else:
                yield from _write_elements(field.elements, writer, pick(field), budget)
        self._end(writer, value)

    def _end(self, writer: Writer, value: object) -> None:
        if self._tagged:
            self._write_tags(writer, value)
        elif self._flexible:
            writer.append(0)

    @property
    def has_arrays(self) -> bool:
        return any(field.elements is not None for field in self._plain)

    def _write_tags(self, writer: Writer, value: object) -> None:
        pick = self._picker(value)
        present = []
        for tag, field in self._tagged.items():
            content = pick(field)
            if content is field.default or content == field.default:
                continue
            encoded = Writer()
            field.write(encoded, content)
            if encoded.data != self._tag_zeros[tag]:
                present.append((tag, encoded.data))
        writer.uvarint(len(present))
        for tag, data in present:
            writer.tag(tag, data)

    def build(self, value: object) -> Any:  # noqa: ANN401 - a value of any kio type
        """Build an instance from nested mappings and sequences of plain data. An instance is returned unchanged.

        A missing field has the schema's default; without a default, None if the field is nullable, else zero or empty.
        Fields that only other versions have are dropped. For a name that no version has, TypeError is raised if
        ``MILENA_STRICT_FIELDS`` is 1 (in tests); otherwise it is dropped, so that the bug does not fail the request.
        """
        if not isinstance(value, Mapping):
            return value
        self._check(value)
        pick = self._picker(value)
        return self._cls(**{field.name: field.build(pick(field)) for field in self._fields()})

    def has(self, name: str) -> bool:
        """Whether this version has a field of that name (Kafka's or kio's)."""
        return any(name in (field.name, field.alias) for field in self._fields())

    def _fields(self) -> Iterable[Field]:
        return (*self._plain, *self._tagged.values())

    def _picker(self, value: object) -> Callable[[Field], object]:
        if isinstance(value, (dict, Mapping)):
            return lambda field: field.of(value)
        return lambda field: getattr(value, field.name)

    def _check(self, values: Mapping[str, object]) -> None:
        """Check the names of fields, as ``build`` describes. Raises TypeError."""
        if not values.keys() <= self._names:
            for name in sorted(values.keys() - self._names):
                if _STRICT and not is_field_of_some_version(self._cls, name):
                    raise TypeError(f"{self._cls.__name__} has no field {name!r}, in no version")
                self._names.add(name)


def _read_elements(elements: Elements, reader: Reader, budget: YieldBudget) -> Cooperative[tuple[object, ...] | None]:
    """Read an array; yields between elements. Raises DecodeError."""
    count = elements.begin_read(reader)
    if count is None:
        return None
    values: list[object] = []
    while (missing := count - len(values)) > 0:
        size = 1
        if elements.struct is None:
            size = min(missing, budget.left)
            values += [elements.read(reader) for _ in range(size)]
        else:
            values.append((yield from elements.struct.read_cooperatively(reader, budget)))
        if budget.spend(size):
            yield
    return tuple(values)


def _write_elements(elements: Elements, writer: Writer, value: Any, budget: YieldBudget) -> Cooperative[None]:  # noqa: ANN401 - elements of any type
    """Append an array; yields between elements."""
    if not elements.begin_write(writer, value):
        return
    for item in value:
        if elements.struct is None:
            elements.write(writer, item)
        else:
            yield from elements.struct.write_cooperatively(writer, item, budget)
        if budget.spend(1):
            yield


@cache
def codec(cls: Any, layout: Layout | None = None) -> StructCodec:  # noqa: ANN401 - a value of any kio type
    """Return the codec of a dataclass in kio's form. Raises TypeError for an unknown type of a field."""
    return StructCodec(cls, Layout(cls.__flexible__) if layout is None else layout)


def _encoded_default(field: Field) -> bytearray:
    out = Writer()
    field.write(out, field.default)
    return out.data


_MISSING: Final = object()
_TIMES: Final = frozenset({"timedelta_i32", "timedelta_i64", "datetime_i64"})


def _field(definition: dataclasses.Field[object], layout: Layout) -> Field:
    kafka_type = definition.metadata.get("kafka_type", "struct")
    form = _form(definition.type, kafka_type, layout)
    default = form.zero if definition.default is dataclasses.MISSING else _plain_default(definition.default)
    if default is None and kafka_type == "datetime_i64":
        default = -1
    name = definition.name
    alias = f"{name}_ms" if kafka_type in _TIMES else name.removesuffix("_")
    write = _shortening(form.write) if name.endswith("error_message") else form.write
    return Field(name, alias, form.read, write, form.build, default, form.elements)


def _shortening(write: Write) -> Write:
    """Wrap the writer of an error message: a message that is too long is shortened."""
    return lambda writer, value: write(writer, shortened(value))


def _plain_default(value: object) -> object:
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return value


def _form(annotation: object, kafka_type: str, layout: Layout) -> Form:
    inner, nullable = _strip_none(annotation)
    if get_origin(inner) is tuple:
        element = get_args(inner)[0]
        struct = codec(element, layout) if isinstance(element, type) and dataclasses.is_dataclass(element) else None
        of = struct if struct is not None and struct.has_arrays else None
        return _array(_form(element, kafka_type, layout), layout.flexible, nullable, of)
    if dataclasses.is_dataclass(inner):
        assert isinstance(inner, type)
        struct = codec(inner, layout)
        return _nullable_struct(struct) if nullable else _struct(struct)
    try:
        legacy, legacy_nullable, compact, compact_nullable = _PRIMITIVES[kafka_type]
    except KeyError:
        raise TypeError(f"unknown kafka_type {kafka_type!r}") from None
    if layout.flexible:
        return compact_nullable if nullable else compact
    return legacy_nullable if nullable else legacy


def _strip_none(annotation: object) -> tuple[object, bool]:
    if get_origin(annotation) in (UnionType, Union):
        members = [member for member in get_args(annotation) if member is not type(None)]
        if len(members) != 1:
            raise TypeError(f"only a union with None has a form, not {annotation}")
        return members[0], True
    return annotation, False


def _struct(of: StructCodec) -> Form:
    return Form(of.read, of.write, of.build, of.build({}))


def _nullable_struct(of: StructCodec) -> Form:
    """The form of a nullable struct (KIP-893): preceded by a byte, -1 for null and 1 otherwise."""

    def read(reader: Reader) -> object:
        return None if reader.int8() < 0 else of.read(reader)

    def write(writer: Writer, value: object) -> None:
        if value is None:
            writer.int8(-1)
        else:
            writer.int8(1)
            of.write(writer, value)

    return Form(read, write, of.build, None)


def _array(element: Form, flexible: bool, nullable: bool, struct: StructCodec | None) -> Form:
    read_count = Reader.compact_array if flexible else Reader.array
    write_count = Writer.compact_array if flexible else Writer.array
    read_element, write_element, build_element, *_ = element
    all_at_once = element is _INT32[0]  # the partitions of a topic may be many

    def begin_read(reader: Reader) -> int | None:
        count = read_count(reader)
        if count >= 0:
            return count
        if nullable:
            return None
        raise DecodeError("null where an array must be")

    def read(reader: Reader) -> tuple[object, ...] | None:
        count = begin_read(reader)
        if count is None:
            return None
        return reader.int32s(count) if all_at_once else tuple([read_element(reader) for _ in range(count)])

    def begin_write(writer: Writer, value: Sequence[object] | None) -> bool:
        if value is None and not nullable:
            raise TypeError("None where an array must be")
        write_count(writer, -1 if value is None else len(value))
        return bool(value)

    def write(writer: Writer, value: Sequence[Any]) -> None:
        if not begin_write(writer, value):
            return
        if all_at_once:
            writer.int32s(value)
        else:
            for item in value:
                write_element(writer, item)

    def build(value: Iterable[object] | None) -> tuple[object, ...] | None:
        return None if value is None else tuple([build_element(item) for item in value])

    return Form(read, write, build, (), Elements(begin_read, begin_write, read_element, write_element, struct))


def _same(value: object) -> object:
    return value


def _same_form(read: Read, write: Write, zero: object) -> tuple[Form, Form, Form, Form]:
    form = Form(read, write, _same, zero)
    return (form, form, form, form)


def _write_time(writer: Writer, value: int | None) -> None:
    writer.int64(-1 if value is None else value)


_INT32: Final = _same_form(Reader.int32, Writer.int32, 0)
_INT64: Final = _same_form(Reader.int64, Writer.int64, 0)
_BLOB: Final = (
    Form(Reader.blob, Writer.blob, _same, b""),
    Form(Reader.nullable_blob, Writer.nullable_blob, _same, None),
    Form(Reader.compact_blob, Writer.compact_blob, _same, b""),
    Form(Reader.compact_nullable_blob, Writer.compact_nullable_blob, _same, None),
)
_UUID: Final = Form(Reader.uuid, Writer.uuid, _same, ZERO_UUID)
_NULLABLE_UUID: Final = Form(Reader.nullable_uuid, Writer.uuid, _same, None)

_PRIMITIVES: Final[Mapping[str, tuple[Form, Form, Form, Form]]] = {
    "bool": _same_form(Reader.boolean, Writer.boolean, False),
    "bytes": _BLOB,
    "datetime_i64": _same_form(Reader.int64, _write_time, -1),
    "error_code": _same_form(Reader.int16, Writer.int16, 0),
    "float64": _same_form(Reader.float64, Writer.float64, 0.0),
    "int16": _same_form(Reader.int16, Writer.int16, 0),
    "int32": _INT32,
    "int64": _INT64,
    "int8": _same_form(Reader.int8, Writer.int8, 0),
    "records": _BLOB,
    "string": (
        Form(Reader.string, Writer.string, _same, ""),
        Form(Reader.nullable_string, Writer.nullable_string, _same, None),
        Form(Reader.compact_string, Writer.compact_string, _same, ""),
        Form(Reader.compact_nullable_string, Writer.compact_nullable_string, _same, None),
    ),
    "timedelta_i32": _INT32,
    "timedelta_i64": _INT64,
    "uint16": _same_form(Reader.uint16, Writer.uint16, 0),
    "uuid": (_UUID, _NULLABLE_UUID, _UUID, _NULLABLE_UUID),
}
"""The forms by ``kafka_type``: non-flexible, non-flexible nullable, compact, compact nullable."""
