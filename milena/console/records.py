"""Reads records of a topic, within limits, and writes one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

import anyio
from fastapi import HTTPException
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field, model_validator

from milena.client.cluster import Cluster
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.client.producer import Producer
from milena.client.raw_reads import read_raw
from milena.console.context import Number, Position, Strict, not_found
from milena.console.model import Json
from milena.console.outcomes import ABORTED, Outcomes, marker_of, outcomes_of
from milena.protocol.records.batch import BatchView, CorruptBatch, iter_batches
from milena.protocol.records.records import Record, iter_records, offset_of, timestamp_of

MOST_RECORDS: Final = 1000
MOST_BYTES: Final = 4 << 20
"""Bytes of records in one answer."""
MOST_SCANNED: Final = 100_000
"""Records that a search for a key examines per request."""
FETCH_BYTES: Final = 1 << 20
LONGEST_SHOWN: Final = 64 << 10
"""Bytes of a key or value in an answer; longer ones are cut."""
MOST_DECOMPRESSED: Final = 64 << 20
SECONDS: Final = 15.0
"""The limit of one read or write."""


class Wanted(BaseModel):
    """Which records to read."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    partition: Number | None = Field(default=None, description="all partitions without it")
    from_: Position | None = Field(default=None, alias="from", description="the first offset")
    time_ms: Position | None = Field(default=None, description="the first record with this timestamp or a later one")
    key: str | None = Field(default=None, description="only records with this key (UTF-8)")
    key_base64: Base64Bytes | None = Field(default=None, description="only records with this key (base64)")
    limit: int = Field(default=50, ge=1, le=MOST_RECORDS)
    max_bytes: int = Field(default=1 << 20, ge=1, le=MOST_BYTES)
    scan: int = Field(default=10_000, ge=1, le=MOST_SCANNED, description="records to examine in a search for a key")
    isolation: Literal["read_uncommitted", "read_committed"] = Field(
        default="read_uncommitted",
        description="read_committed: up to the last stable offset, without records of aborted transactions",
    )
    markers: bool = Field(default=False, description="also control records, such as the markers of transactions")

    @model_validator(mode="after")
    def _one_of_each(self) -> Wanted:
        if self.from_ is not None and (self.partition is None or self.time_ms is not None):
            raise ValueError("from needs partition, and excludes time_ms")
        if self.key is not None and self.key_base64 is not None:
            raise ValueError("key and key_base64 exclude each other")
        return self

    @property
    def is_committed(self) -> bool:
        return self.isolation == "read_committed"

    @property
    def key_bytes(self) -> bytes | None:
        return self.key_base64 if self.key is None else self.key.encode()


class NewRecord(Strict):
    """A record to write. Text is UTF-8; a key or value that is left out is null."""

    partition: Number | None = Field(default=None, description="chosen by the key without it")
    key: str | None = None
    key_base64: Base64Bytes | None = None
    value: str | None = None
    value_base64: Base64Bytes | None = None
    headers: list[tuple[str, str | None]] = Field(default=[])

    @model_validator(mode="after")
    def _one_of_each(self) -> NewRecord:
        if None not in (self.key, self.key_base64) or None not in (self.value, self.value_base64):
            raise ValueError("key and key_base64, and value and value_base64, exclude each other")
        return self


class Reading:
    """The records that one answer has so far."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.records: list[Json] = []
        self.left = wanted.limit
        """Records that may be added."""
        self.bytes_left = wanted.max_bytes
        self.scans_left = wanted.scan if wanted.key_bytes is not None else MOST_SCANNED

    @property
    def is_full(self) -> bool:
        return min(self.left, self.bytes_left, self.scans_left) <= 0

    def take(self, partition: int, offset: int, data: bytes, outcomes: Outcomes) -> int:
        """Add the wanted records of fetched batches from ``offset`` on, until the answer is full. Return the offset
        after the last one examined. Raises CorruptBatch, ValueError."""
        for batch in iter_batches(memoryview(data)):
            outcome = outcomes.of(batch)
            if self._wants(batch, outcome):
                for found, record in _records_from(batch, offset):
                    if self.is_full:
                        return offset
                    self._add(partition, found, batch, record, outcome)
                    offset = found + 1
            elif self.scans_left <= 0:
                return offset
            else:
                self.scans_left -= batch.count
            offset = max(offset, batch.last_offset + 1)
        return offset

    def _wants(self, batch: BatchView, outcome: str | None) -> bool:
        if batch.is_control:
            return self.wanted.markers
        return outcome != ABORTED or not self.wanted.is_committed

    def _add(self, partition: int, offset: int, batch: BatchView, record: Record, outcome: str | None) -> None:
        self.scans_left -= 1
        key = self.wanted.key_bytes
        if key is not None and (record.key != key or batch.is_control):
            return
        self.left -= 1
        self.bytes_left -= len(record.key or b"") + len(record.value or b"")
        shown = _as_json(partition, offset, batch, record)
        if outcome is not None:
            shown["transaction"] = {
                "producer_id": batch.producer_id, "producer_epoch": batch.producer_epoch, "outcome": outcome,
            }  # fmt: skip
        self.records.append(shown)


def _records_from(batch: BatchView, offset: int) -> Iterator[tuple[int, Record]]:
    if batch.last_offset >= offset:
        for record in iter_records(batch, MOST_DECOMPRESSED):
            found = offset_of(batch, record)
            if found >= offset:
                yield found, record


def _as_json(partition: int, offset: int, batch: BatchView, record: Record) -> Json:
    is_control = batch.is_control
    return {
        "partition": partition,
        "offset": offset,
        "time_ms": timestamp_of(batch, record),
        "epoch": batch.leader_epoch,
        "control": marker_of(batch) if is_control else None,
        "transaction": None,
        "key": None if is_control else _shown(record.key),
        "value": None if is_control else _shown(record.value),
        "headers": [[name, _shown(value)] for name, value in record.headers],
        "cut": max(len(record.key or b""), len(record.value or b"")) > LONGEST_SHOWN,
    }


def _shown(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data[:LONGEST_SHOWN]).decode()


async def read(client: Cluster, topic: str, wanted: Wanted) -> Json:
    """Return the records, oldest first, where to continue, and the high watermarks. Without ``partition`` each
    partition has an equal share of the limit. Raises KafkaError, ChannelError, HTTPException."""
    with _limited(f"{topic} could not be read"):
        known = (await client.topic(topic, fresh=True)).partitions
        if wanted.partition is not None and wanted.partition not in known:
            raise not_found(f"{topic} has the partitions 0 to {len(known) - 1}, not {wanted.partition}")
        numbers = sorted(known) if wanted.partition is None else [wanted.partition]
        reading, positions, marks = Reading(wanted), dict[str, int](), dict[str, int]()
        share = -(-wanted.limit // len(numbers))
        for index, number in enumerate(numbers):
            reading.left = min(wanted.limit, share * (index + 1)) - len(reading.records)
            first = await _first_offset(client, topic, number, wanted)
            positions[str(number)], marks[str(number)] = await _read_partition(client, topic, number, first, reading)
    records = sorted(reading.records, key=lambda record: (record["time_ms"], record["partition"], record["offset"]))
    return {"records": records, "next": positions, "high_watermark": marks}


async def _first_offset(client: Cluster, topic: str, partition: int, wanted: Wanted) -> int:
    if wanted.from_ is not None:
        return wanted.from_
    if wanted.time_ms is not None:
        found = (await find_offset(client, topic, partition, wanted.time_ms)).offset
        return found if found >= 0 else (await find_offset(client, topic, partition, LATEST)).offset
    return (await find_offset(client, topic, partition, EARLIEST)).offset


async def _read_partition(
    client: Cluster, topic: str, partition: int, offset: int, reading: Reading
) -> tuple[int, int]:
    """Return where to continue, and the high watermark."""
    committed = reading.wanted.is_committed
    while True:
        fetched = await read_raw(client, topic, partition, offset, committed=committed, max_bytes=FETCH_BYTES)
        try:
            outcomes = await outcomes_of(client, topic, partition, offset, fetched, FETCH_BYTES, committed=committed)
            after = reading.take(partition, offset, fetched.data, outcomes)
        except (CorruptBatch, ValueError) as error:
            raise HTTPException(422, f"the records from offset {offset} on cannot be read: {error}") from None
        if after == offset or after >= fetched.end or reading.is_full:
            return after, fetched.high_watermark
        offset = after


async def produce(client: Cluster, topic: str, record: NewRecord) -> tuple[int, int]:
    """Write one record; return its partition and offset. Raises KafkaError, HTTPException."""
    with _limited(f"the record was not acknowledged by {topic} in time, and may be written"):
        known = (await client.topic(topic, fresh=True)).partitions
        if record.partition is not None and record.partition not in known:
            raise not_found(f"{topic} has the partitions 0 to {len(known) - 1}, not {record.partition}")
        producer = Producer(client, delivery_timeout=SECONDS, request_timeout=SECONDS)
        try:
            produced = await producer.send(
                topic,
                record.value_base64 if record.value is None else record.value.encode(),
                key=record.key_base64 if record.key is None else record.key.encode(),
                partition=record.partition,
                headers=[(name, None if value is None else value.encode()) for name, value in record.headers],
            )
        finally:
            await producer.close(flush=False)
    return produced.partition, produced.offset


@contextmanager
def _limited(text: str) -> Iterator[None]:
    """A scope whose end after SECONDS is HTTPException 503 with the given text."""
    with anyio.move_on_after(SECONDS) as scope:
        yield
    if scope.cancelled_caught:
        raise HTTPException(503, f"{text} (within {SECONDS:g} s)")
