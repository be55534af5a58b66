"""Kafka's small text files: offset checkpoints, leader epochs, topic id, directory properties, clean shutdown.

This module only encodes and decodes. Logs and log directories decide when a file is read or written.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Final
from uuid import UUID

from milena.protocol.types import BrokerEpoch, LeaderEpoch, Offset, TopicPartition
from milena.protocol.uuids import from_text, to_text
from milena.storage.state.epoch_cache import EpochEntry

_VERSION: Final = 0


class CorruptCheckpoint(ValueError):
    """The file is not a valid checkpoint."""


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """Encode an offset checkpoint: ``0``, the number of lines, then ``topic partition offset`` on each line."""
    return encode_offset_lines([offset_line(partition, offset) for partition, offset in offsets.items()])


def offset_line(partition: TopicPartition, offset: Offset) -> str:
    """Return a partition's line of an offset checkpoint."""
    return f"{partition[0]} {partition[1]} {offset}"


def encode_offset_lines(lines: Collection[str]) -> bytes:
    """Encode an offset checkpoint of these lines."""
    return _encode(lines)


def decode_offsets(data: bytes) -> dict[TopicPartition, Offset]:
    """Decode an offset checkpoint. Raises CorruptCheckpoint."""
    offsets: dict[TopicPartition, Offset] = {}
    for line in _decode(data):
        fields = line.split()
        if len(fields) != 3:
            raise CorruptCheckpoint(f"line {line!r} is not TOPIC PARTITION OFFSET")
        offsets[fields[0], _number(fields[1])] = Offset(_number(fields[2]))
    return offsets


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Encode a leader epoch checkpoint: ``0``, the number of lines, then ``epoch start-offset`` on each line."""
    return _encode([f"{epoch} {start}" for epoch, start in entries])


def decode_epochs(data: bytes) -> list[EpochEntry]:
    """Decode a leader epoch checkpoint; an empty file has no entries. Raises CorruptCheckpoint."""
    entries = []
    for line in _decode(data):
        fields = line.split()
        if len(fields) != 2:
            raise CorruptCheckpoint(f"line {line!r} is not EPOCH OFFSET")
        epoch, start = _number(fields[0]), _number(fields[1])
        if epoch < 0 or start < 0:
            raise CorruptCheckpoint(f"line {line!r} has a negative number")
        entries.append(EpochEntry(LeaderEpoch(epoch), Offset(start)))
    return entries


def encode_partition_metadata(topic_id: UUID) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {to_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> UUID:
    """Return the topic's id. Raises CorruptCheckpoint."""
    fields = dict(line.split(": ", 1) for line in _text(data).splitlines() if ": " in line)
    try:
        return from_text(fields["topic_id"].strip())
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(f"no topic id in {data!r}") from error


def encode_clean_shutdown(broker_epoch: BrokerEpoch | None) -> bytes:
    """Encode the marker of a clean shutdown, with the broker epoch, -1 if there was none (KIP-966)."""
    epoch = -1 if broker_epoch is None else broker_epoch
    return json.dumps({"version": _VERSION, "brokerEpoch": epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> BrokerEpoch | None:
    """Return the broker epoch, None if the file has none (before Kafka 4.0 it was empty)."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return None
    return BrokerEpoch(epoch) if isinstance(epoch, int) and epoch >= 0 else None


def _encode(lines: Collection[str]) -> bytes:
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode()


def _decode(data: bytes) -> list[str]:
    if data and not data.endswith(b"\n"):
        # A truncated number on the last line is still a number.
        raise CorruptCheckpoint("the last line is truncated")
    lines = [line for line in _text(data).splitlines() if line.strip()]
    if not lines:
        return []
    if _number(lines[0]) != _VERSION:
        raise CorruptCheckpoint(f"version {lines[0]!r} is not {_VERSION}")
    if len(lines) < 2 or _number(lines[1]) != len(lines) - 2:
        raise CorruptCheckpoint(f"the file has {len(lines) - 2} lines, and its header says {lines[1:2]}")
    return lines[2:]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint("not UTF-8") from error


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CorruptCheckpoint(f"{text!r} is not a number") from error
