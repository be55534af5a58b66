"""Checks whether a kio struct has a field in another version of its message.

Handlers build the fields of a response for all versions, and fields that a version lacks are dropped. A name that no
version has is a bug. The modules of other versions are imported when a check needs them, newest first, since the newest
version has most fields.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_MODULE: Final = re.compile(r"(kio\.schema\.\w+)\.v\d+\.(\w+)")


def is_field_of_some_version(struct: type[DataclassInstance], name: str) -> bool:
    """Whether some version of ``struct`` has the field ``name``: Kafka's name, or kio's, which lacks the ``_ms`` of
    times and has ``id_`` for ``id``."""
    names = {name, name.removesuffix("_ms"), f"{name}_"}
    return any(not names.isdisjoint(field.name for field in fields(other)) for other in _versions_of(struct))


def _versions_of(struct: type[DataclassInstance]) -> Iterator[type[DataclassInstance]]:
    """Yield the classes of a struct in all versions. A struct outside of kio has one class for all versions."""
    match = _MODULE.fullmatch(struct.__module__)
    if match is None:
        yield struct
        return
    package, kind = match.groups()
    for version in _versions(package):
        other = getattr(importlib.import_module(f"{package}.v{version}.{kind}"), struct.__name__, None)
        if isinstance(other, type) and is_dataclass(other):
            yield other


@cache
def _versions(package: str) -> tuple[int, ...]:
    """Return the versions of a kio package, newest first."""
    names = [module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__)]
    return tuple(sorted((int(name[1:]) for name in names if name[1:].isdigit()), reverse=True))
