"""A sequence of requests as data, which can be generated, printed as Python, read back and minimised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final
from uuid import UUID

from milena.protocol.api_keys import ApiKey
from milena.protocol.records.batch import Codec, TimestampType
from milena.protocol.records.records import Record
from tests.oracle.differential.batches import THEN, batch, forged, with_body
from tests.oracle.differential.sides import Made, Name, Side

TAG: Final = "r000000"
"""Prefix of topics and groups in a script. A run replaces it by its own tag of the same length."""


@dataclass(frozen=True)
class Epoch(Made):
    """The epoch that each side has last assigned to a producer, plus ``more``."""

    producer: str
    more: int = 0

    def made(self, side: Side) -> int:
        return min(max(side.epochs.get(self.producer, 0) + self.more, -1), 2**15 - 1)


@dataclass(frozen=True)
class Batch(Made):
    """A record batch, built for each side separately because producer ids may differ."""

    count: int = 1
    codec: int = 0
    timestamp: int = THEN
    deltas: tuple[int, ...] = ()
    """Timestamp deltas of the records; a record without a delta has its index as delta."""
    key: bytes | None = b"k"
    size: int = 5
    """Size of a value in bytes; -1: null."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    producer: int | Name = -1
    epoch: int | Epoch = -1
    sequence: int = -1
    changed: tuple[tuple[str, int], ...] = ()
    """Header fields that are set to other values, with a matching checksum."""
    append_time: bool = False
    transactional: bool = False
    body: bytes | None = None
    """Bytes instead of the records."""
    cut: int = 0
    """Number of bytes that are cut off at the end."""

    def made(self, side: Side) -> bytes:
        value = None if self.size < 0 else b"v" * self.size
        held = [
            Record(index, self.deltas[index] if index < len(self.deltas) else index, self.key, value, self.headers)
            for index in range(self.count)
        ]
        data = batch(
            held,
            codec=Codec(self.codec),
            base_timestamp=self.timestamp,
            producer_id=side.resolve(self.producer),
            producer_epoch=side.resolve(self.epoch),
            transactional=self.transactional,
            base_sequence=self.sequence,
            timestamp_type=TimestampType.LOG_APPEND_TIME if self.append_time else TimestampType.CREATE_TIME,
        )
        if self.body is not None:
            data = with_body(data, self.body)
        if self.changed:
            data = forged(data, **dict(self.changed))
        return data[: len(data) - self.cut]

    def __repr__(self) -> str:
        given = [(one.name, getattr(self, one.name)) for one in fields(self) if getattr(self, one.name) != one.default]
        return f"Batch({', '.join(f'{name}={value!r}' for name, value in given)})"


@dataclass(frozen=True)
class Long(Made):
    """A long text."""

    size: int

    def made(self, side: Side) -> str:
        return "x" * self.size


@dataclass(frozen=True)
class Step:
    """One request of one of the clients. ``learns`` is the name for the id in its response."""

    key: ApiKey
    version: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    client: int = 0
    learns: str = ""

    def __repr__(self) -> str:
        more = f", client={self.client}" if self.client else ""
        more += f", learns={self.learns!r}" if self.learns else ""
        return f"Step(ApiKey.{self.key.name}, {self.version}, {self.fields!r}{more})"


Script = Sequence[Step]


def written(script: Script) -> str:
    """Return the script as Python source, for a report and for ``read``."""
    return "\n".join(f"    {step!r}," for step in script)


def read(text: str) -> list[Step]:
    """Return the script that ``written`` has printed."""
    known = {"Step": Step, "Batch": Batch, "Long": Long, "Epoch": Epoch, "Name": Name, "UUID": UUID, "ApiKey": ApiKey}
    script: list[Step] = eval(f"[\n{text}\n]", {"__builtins__": {}}, known)
    return script


def tagged(value: Any, old: str, new: str) -> Any:
    """Return the value with the tag of another run in its texts, names and bytes. Both tags have the same length."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, bytes):
        return value.replace(old.encode(), new.encode())
    if isinstance(value, Name):
        return Name(value.of.replace(old, new))
    if isinstance(value, Mapping):
        return {tagged(key, old, new): tagged(item, old, new) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [tagged(item, old, new) for item in value]
    return value
