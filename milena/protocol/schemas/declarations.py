"""Declares the messages of each served API for type checkers: the modules of ``milena/protocol/apis``.

``python -m milena.protocol.schemas.declarations`` writes them from kio's schemas; a test compares. A module has, for
each struct of its API's request and response, over all served versions,

* a protocol of what a decoded one has (``ListOffsetsRequest``, ``ListOffsetsTopic``), and
* a typed dictionary of what one is made from (``ListOffsetsResponseFields``), for ``protocol.requests.messages``.

A field that some served versions lack has a comment with the versions that have it; ``messages.get`` reads it. Names
are kio's in the protocols and Kafka's in the dictionaries, where times end in ``_ms`` and ``id`` has no underscore
(``protocol.schemas.structs``). Nobody imports these modules at run time.
"""

from __future__ import annotations

import dataclasses
import importlib
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Final, Union, get_args, get_origin

from milena.protocol.schemas.registry import REGISTRY, Api, VersionRange

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FOLDER: Final = Path(__file__).parents[1] / "apis"
_HEAD: Final = '''"""{name} ({key}), {versions}. Made by ``milena.protocol.schemas.declarations``, not by hand."""

from __future__ import annotations
'''
_TIMES: Final = frozenset({"timedelta_i32", "timedelta_i64", "datetime_i64"})
_PLAIN: Final = {
    "bool": "bool",
    "bytes": "bytes",
    "records": "bytes",
    "float64": "float",
    "string": "str",
    "uuid": "UUID",
}
"""Everything else is an integer."""
_IDS: Final = {"BrokerId": "NodeId", "ProducerId": "ProducerId"}
"""Integers that have a type of their own here when they are read, by kio's name for it."""


@dataclasses.dataclass
class Declared:
    """One field: its type when decoded, when given, and the versions that have it."""

    name: str
    kafka_name: str
    decoded: str
    given: str
    nullable: bool
    versions: list[int]


@dataclasses.dataclass
class Struct:
    """One struct with the fields of all versions, newest first."""

    name: str
    fields: dict[str, Declared] = dataclasses.field(default_factory=dict)


def modules() -> dict[str, str]:
    """The text of each module by its name."""
    return {api.key.name.lower(): _module(api, api.ours) for api in REGISTRY.values() if api.ours is not None}


def _module(api: Api, versions: VersionRange) -> str:
    kinds = [_structs(api, versions, kind) for kind in ("request", "response")]
    counts = Counter(name for structs in kinds for name in structs)
    classes: list[str] = []
    for kind, structs in zip(("Request", "Response"), kinds, strict=True):
        renamed = {name: f"{kind}{name}" if counts[name] > 1 else name for name in structs}
        for struct in structs.values():
            classes.append(_protocol(struct, versions, renamed))
            classes.append(_dictionary(struct, versions, renamed))
    name = api.key.name.title().replace("_", "")
    told = f"version {versions}" if versions.min == versions.max else f"versions {versions}"
    head = _HEAD.format(name=name, key=api.key.value, versions=told)
    return "\n\n".join((head + _imports("".join(classes)), *classes))


def _imports(text: str) -> str:
    lines = ["", "from collections.abc import Sequence"] if "Sequence[" in text else [""]
    lines.append("from typing import Protocol, TypedDict")
    if "UUID" in text:
        lines.append("from uuid import UUID")
    if "Data" in text.split():
        lines += ["", "from milena.protocol.schemas.primitives import Data"]
    ids = [name for name in sorted(_IDS.values()) if re.search(rf"\b{name}\b", text)]
    if ids:
        lines += [*([] if lines[-1].endswith("Data") else [""]), f"from milena.protocol.types import {', '.join(ids)}"]
    return "\n".join((*lines, ""))


def _protocol(struct: Struct, served: VersionRange, renamed: Mapping[str, str]) -> str:
    lines = [f"class {renamed[struct.name]}(Protocol):"]
    for field in struct.fields.values():
        decoded = _text(field.decoded, renamed, nullable=field.nullable)
        lines.append("    @property")
        lines.append(f"    def {field.name}(self) -> {decoded}: ...{_since(field, served)}")
    return _class(lines)


def _dictionary(struct: Struct, served: VersionRange, renamed: Mapping[str, str]) -> str:
    lines = [f"class {renamed[struct.name]}Fields(TypedDict, total=False):"]
    for field in struct.fields.values():
        given = _text(field.given, renamed, nullable=field.nullable, suffix="Fields")
        lines.append(f"    {field.kafka_name}: {given}{_since(field, served)}")
    return _class(lines)


def _class(lines: list[str]) -> str:
    return "\n".join((*lines, *(["    pass"] if len(lines) == 1 else []), ""))


def _text(form: str, renamed: Mapping[str, str], *, nullable: bool, suffix: str = "") -> str:
    """``form`` has ``<name>`` where a struct is meant."""
    for name, told in renamed.items():
        form = form.replace(f"<{name}>", told + suffix)
    return f"{form} | None" if nullable else form


def _since(field: Declared, served: VersionRange) -> str:
    low, high = min(field.versions), max(field.versions)
    if (low, high) == tuple(served):
        return ""
    return f"  # {VersionRange(low, high)}"


def _structs(api: Api, versions: VersionRange, kind: str) -> dict[str, Struct]:
    """By name, the message first."""
    found: dict[str, Struct] = {}
    for version in range(versions.max, versions.min - 1, -1):
        module = importlib.import_module(f"kio.schema.{api.key.name.lower()}.v{version}.{kind}")
        message = next(cls for cls in reversed(vars(module).values()) if getattr(cls, "__type__", None) is not None)
        for cls in _parts(message):
            struct = found.setdefault(cls.__name__, Struct(cls.__name__))
            for definition in dataclasses.fields(cls):
                _add(struct, definition, version)
    return found


def _parts(cls: type[DataclassInstance]) -> Iterator[type[DataclassInstance]]:
    yield cls
    for definition in dataclasses.fields(cls):
        inner = _inner(definition.type)[0]
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            yield from _parts(inner)


def _add(struct: Struct, definition: dataclasses.Field[object], version: int) -> None:
    inner, array, nullable = _inner(definition.type)
    kafka_type = definition.metadata.get("kafka_type", "struct")
    if isinstance(inner, type) and dataclasses.is_dataclass(inner):
        decoded = given = f"<{inner.__name__}>"
    else:
        decoded = _PLAIN.get(kafka_type, "int")
        given = "Data" if decoded == "bytes" else decoded
        decoded = _IDS.get(getattr(inner, "__name__", ""), decoded)
        if array and kafka_type == "uuid":
            decoded = given = "UUID | None"
    if array:
        decoded, given = f"tuple[{decoded}, ...]", f"Sequence[{given}]"
    name = definition.name
    kafka_name = f"{name}_ms" if kafka_type in _TIMES else name.removesuffix("_")
    known = struct.fields.setdefault(
        name, Declared(name, name if keyword.iskeyword(kafka_name) else kafka_name, decoded, given, nullable, [])
    )
    assert (known.decoded, known.given) == (decoded, given), f"{struct.name}.{name} has another type in another version"
    known.nullable |= nullable
    known.versions.append(version)


def _inner(annotation: object) -> tuple[object, bool, bool]:
    """(the type of the value, or of an array's elements; whether it is an array; whether it may be None)."""
    inner, nullable = _without_none(annotation)
    if get_origin(inner) is tuple:
        return _without_none(get_args(inner)[0])[0], True, nullable
    return inner, False, nullable


def _without_none(annotation: object) -> tuple[object, bool]:
    if get_origin(annotation) not in (UnionType, Union):
        return annotation, False
    members: Iterable[object] = get_args(annotation)
    return next(member for member in members if member is not type(None)), type(None) in members


def write() -> None:
    """Renew the folder."""
    FOLDER.mkdir(exist_ok=True)
    made = {f"{name}.py": text for name, text in modules().items()}
    for path in FOLDER.glob("*.py"):
        if path.name not in made and path.name != "__init__.py":
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    write()
