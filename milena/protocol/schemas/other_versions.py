"""Checks whether the struct of a message has a field in another version of its message.

Handlers build the fields of a response for all versions, and fields that a version lacks are dropped. A name that no
version has is a bug. The classes of other versions are imported when a check needs them, newest first, since the newest
version has most fields.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from milena.protocol.schemas.message_classes import KINDS, message_class
from milena.protocol.schemas.registry import REGISTRY

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def is_field_of_some_version(struct: type[DataclassInstance], name: str) -> bool:
    """Whether some version of ``struct`` has the field ``name``: Kafka's name, or kio's, which lacks the ``_ms`` of
    times and has ``id_`` for ``id``."""
    names = {name, name.removesuffix("_ms"), f"{name}_"}
    return any(not names.isdisjoint(field.name for field in fields(other)) for other in _versions_of(struct))


def _versions_of(struct: type[DataclassInstance]) -> Iterator[type[DataclassInstance]]:
    """Yield the classes of a struct in all versions. A struct without an API has one class for all versions."""
    key: int | None = getattr(struct, "__api_key__", None)
    if key is None:
        yield struct
        return
    low, high = REGISTRY[key].kafka
    for version in range(high, low - 1, -1):
        for kind in KINDS:
            try:
                module = sys.modules[message_class(key, version, kind).__module__]
            except LookupError:
                continue
            other = getattr(module, struct.__name__, None)
            if isinstance(other, type) and is_dataclass(other):
                yield other
