"""Comparison of two responses: ids, times, addresses and messages may differ, everything else must be equal."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from milena.protocol.records.batch import HEADER_SIZE, Codec, iter_batches
from milena.protocol.records.records import Record, iter_records
from tests.oracle.differential.sides import Side

_HOUR_MS: Final = 3_600_000
_LAST_GIVEN_ID: Final = 1 << 64
"""Topic ids up to this one are chosen by tests; the sides create random ones."""
_UUID_IN_TEXT: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNTOLD: Final = frozenset({"throttle_time", "documentation"})
_MESSAGES: Final = frozenset({"error_message", "batch_index_error_message"})
_ORDER: Final = (
    "batch", "name", "topic", "api_key", "resource_type", "resource_name", "config_name", "topic_name", "topic_id",
    "partition_index", "partition", "index", "group_id", "member_id", "feature", "node_id", "broker_id", "replica_id",
    "producer_id", "transactional_id", "entity_type", "entity", "key",
)  # fmt: skip


def normal(side: Side, answer: Any, ignore: Collection[str] = ()) -> Any:
    """Return the response with constants for values that may differ. ``ignore`` names further fields that are left out.
    The text of a message may differ, but both sides must have one, or neither."""
    called = {value: f"<{name}>" for name, value in side.names.items()}
    called |= {side.cluster_id: "<cluster>", f"/{side.host}": "<client>"}
    return _Normaliser(side, called, frozenset(ignore) | _UNTOLD).value("", answer)


class _Normaliser:
    def __init__(self, side: Side, called: dict[Any, str], untold: frozenset[str]) -> None:
        self._side = side
        self._called = called
        self._untold = untold
        self._now = time.time() * 1000

    def value(self, field: str, value: Any) -> Any:
        if isinstance(value, dict):
            # Kafka sends a message with some successful results.
            untold = self._untold | _MESSAGES if value.get("error_code") == 0 else self._untold
            found = {key: self.value(key, item) for key, item in value.items() if key not in untold}
            if "crc" in found and any(str(found[key]).startswith("<") for key in _IN_THE_CRC):
                del found["crc"]
            return found
        if field == "records" and isinstance(value, bytes):
            return self.value("batches", batches_in(value))
        if isinstance(value, list):
            if field in ("responses", "topics"):
                value = _merged(value)
            items = [self.value(field, item) for item in value]
            if field == "partitions" and all(isinstance(item, int) for item in items):
                return sorted(items)
            # Topics that the test has not named have one id: the rest of their contents decides.
            by_place = bool(items) and isinstance(items[0], dict)
            return sorted(items, key=lambda item: (_place(item), repr(item))) if by_place else items
        return self._leaf(field, value)

    def _leaf(self, field: str, value: Any) -> Any:
        if field in _MESSAGES:
            return "<a text>" if value else None
        if isinstance(value, bool) or value is None:
            return value
        if value in self._called and (not isinstance(value, (int, float)) or field in _ID_FIELDS):
            return self._called[value]
        if field == "session_id" and value:
            return "<a session>"
        if field == "port" and value in self._side.ports:
            return "<port>"
        if isinstance(value, int) and abs(value - self._now) < _HOUR_MS:
            return "<now>"
        if isinstance(value, UUID) and value.int > _LAST_GIVEN_ID:
            return "<an id>"
        if isinstance(value, str):
            return _UUID_IN_TEXT.sub("<an id>", value)
        return value


_ID_FIELDS: Final = frozenset({"producer_id"})
_IN_THE_CRC: Final = ("producer_id", "base_timestamp", "max_timestamp")
"""Fields of a batch that may differ, and so does its checksum."""


def _merged(topics: list[Any]) -> list[Any]:
    """Return each topic with partitions once: Kafka may return one several times, each time with some of its
    partitions, or once if a request has listed it twice."""
    found: dict[Any, Any] = {}
    for topic in topics:
        parts = next((key for key in ("partitions", "partition_responses") if key in topic), None)
        key = topic.get("topic_id"), topic.get("topic", topic.get("name"))
        if parts is None:
            found[len(found)] = topic
        elif key in found:
            found[key] = found[key] | {parts: found[key][parts] + topic[parts]}
        else:
            found[key] = topic
    return list(found.values())


def batches_in(data: bytes) -> list[dict[str, Any]]:
    """Return the batches of fetched bytes, and the length of an incomplete last one. Compressed bytes depend on the
    library and are decompressed."""
    found: list[dict[str, Any]] = []
    size = 0
    for batch in iter_batches(memoryview(data)):
        header = {name: getattr(batch, name) for name in _HEADER_FIELDS}
        if batch.codec is Codec.NONE:
            header |= {"crc": batch.crc, "batch_length": batch.batch_length}
        found.append({"batch": len(found), **header, "holds": [_fields_of(record) for record in iter_records(batch)]})
        size += batch.size_in_bytes
    return [*found, {"batch": len(found), "bytes": min(len(data) - size, HEADER_SIZE)}]


def _fields_of(record: Record) -> tuple[object, ...]:
    return record.offset_delta, record.timestamp_delta, record.key, record.value, record.headers


_HEADER_FIELDS: Final = (
    "base_offset", "leader_epoch", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp",
    "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip


def differences(kafka: Any, milena: Any, path: str = "") -> Iterator[str]:
    """Return each place where two normalised responses differ. Milena may have a message where Kafka has none."""
    if kafka is None and path.rpartition(".")[2] in _MESSAGES:
        return
    if isinstance(kafka, dict) and isinstance(milena, dict):
        for key in kafka:
            yield from differences(kafka[key], milena.get(key), f"{path}.{key}")
    elif isinstance(kafka, list) and isinstance(milena, list) and len(kafka) == len(milena):
        for index, (theirs, ours) in enumerate(zip(kafka, milena, strict=True)):
            yield from differences(theirs, ours, f"{path}[{index}]")
    elif kafka != milena:
        yield f"{path}: Kafka {kafka!r}, Milena {milena!r}"


def _place(item: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    keys = [(key, item[key]) for key in _ORDER if key in item]
    return [(key, value, "") if isinstance(value, int) else (key, 0, str(value)) for key, value in keys]
