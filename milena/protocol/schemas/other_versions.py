"""Whether a struct of kio's has a field in another version of its message.

A response is built once for all versions of a request, and what the version lacks is dropped. A name that no version of
that struct has is a mistake. The modules of the other versions are imported when it is asked for, newest first, since
that one has most names.
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
    """``name`` is Kafka's or kio's, which lacks the ``_ms`` of times and has ``id_`` for ``id``."""
    wanted = {name, name.removesuffix("_ms"), f"{name}_"}
    return any(not wanted.isdisjoint(field.name for field in fields(other)) for other in _versions_of(struct))


def _versions_of(struct: type[DataclassInstance]) -> Iterator[type[DataclassInstance]]:
    """A struct of our own has one class for all versions."""
    place = _MODULE.fullmatch(struct.__module__)
    if place is None:
        yield struct
        return
    package, kind = place.groups()
    for version in _versions(package):
        other = getattr(importlib.import_module(f"{package}.v{version}.{kind}"), struct.__name__, None)
        if isinstance(other, type) and is_dataclass(other):
            yield other


@cache
def _versions(package: str) -> tuple[int, ...]:
    """Newest first."""
    names = [module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__)]
    return tuple(sorted((int(name[1:]) for name in names if name[1:].isdigit()), reverse=True))
