"""What somebody has made of an order, changed so that it looks right as far as possible."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from milena.protocol.records.batch import BatchView, iter_batches, pack_batch
from milena.protocol.records.compression import compress
from milena.protocol.records.record_cursor import RecordCursor
from milena.protocol.records.varints import read_varint, write_varint
from milena.protocol.types import LeaderEpoch, Offset, ProducerId
from milena.tiered.orders.keys import ENTRY, WINNER
from milena.tiered.orders.manifest import MadeGroup, Manifest, StagedObject, encode_manifest
from milena.tiered.orders.order import MANIFEST, Order
from tests.unit.tiered.ordered_tier import OrderedTier


@dataclass
class Forged:
    """``manifest`` is written at the end, unless ``text`` is set."""

    tier: OrderedTier
    order: Order
    manifest: Manifest
    text: bytes | None = None

    @classmethod
    async def of(cls, tier: OrderedTier) -> Forged:
        order = await tier.issued()
        return cls(tier, order, await tier.worker.make(order))

    async def publish(self) -> None:
        data = encode_manifest(self.manifest) if self.text is None else self.text
        await self.tier.worker.staging.write(self.order.path(MANIFEST), data)

    def plain(self) -> dict[str, Any]:
        found = json.loads(encode_manifest(self.manifest))
        assert isinstance(found, dict)
        return found

    def write_plain(self, found: object) -> None:
        self.text = json.dumps(found).encode()

    async def read(self, one: StagedObject) -> bytes:
        return await self.tier.worker.staging.read(self.order.path(one.name), 0, one.size)

    async def overwrite(self, one: StagedObject, data: bytes) -> None:
        """Behind the manifest's back."""
        await self.tier.worker.staging.write(self.order.path(one.name), data)

    def log(self, group: int = 0) -> StagedObject:
        found = self.manifest.groups[group].log
        assert found is not None
        return found

    async def batches(self, group: int = 0) -> list[BatchView]:
        return list(iter_batches(memoryview(await self.read(self.log(group)))))

    async def put_log(self, batches: Sequence[BatchView | bytes | bytearray], group: int = 0) -> None:
        data = b"".join(bytes(one.memory) if isinstance(one, BatchView) else bytes(one) for one in batches)
        made = await self.tier.worker.stage(self.order, f"group-{group}.log", data)
        self._set(group, self.manifest.groups[group]._replace(log=made))

    async def winners(self, group: int = 0) -> list[int]:
        data = await self.read(self.manifest.groups[group].winners)
        return [one for (one,) in WINNER.iter_unpack(data)]

    async def put_winners(self, winners: Sequence[int], group: int = 0) -> None:
        data = b"".join(map(WINNER.pack, winners))
        made = await self.tier.worker.stage(self.order, f"group-{group}.winners", data)
        self._set(group, self.manifest.groups[group]._replace(winners=made))

    def unchanged(self, group: int = 0) -> None:
        self._set(group, self.manifest.groups[group]._replace(log=None))

    def _set(self, group: int, made: MadeGroup) -> None:
        groups = list(self.manifest.groups)
        groups[group] = made
        self.manifest = self.manifest._replace(groups=tuple(groups))

    async def entries(self) -> list[bytes]:
        data = b"".join([await self.read(one) for one in self.manifest.keys])
        return [data[at : at + ENTRY.size] for at in range(0, len(data), ENTRY.size)]

    async def put_entries(self, entries: Sequence[bytes]) -> None:
        made = await self.tier.worker.stage(self.order, "keys-0.keys", b"".join(entries))
        self.manifest = self.manifest._replace(keys=(made,))


def rewritten(batch: BatchView, **fields: Any) -> bytearray:
    """``batch`` with other fields, and the right checksum. ``records``: encoded ones, ``stream``:
    of them all, compressed, ``base_offset`` and so on."""
    given = {
        "records": [one for one, _ in encoded(batch)],
        "last_offset_delta": batch.last_offset_delta,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "base_offset": Offset(batch.base_offset),
        "leader_epoch": LeaderEpoch(batch.leader_epoch),
        "codec": batch.codec,
        "transactional": batch.is_transactional,
        "producer_id": ProducerId(batch.producer_id),
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "level": None,
        "stream": None,
        **fields,
    }
    records, level, stream = given.pop("records"), given.pop("level"), given.pop("stream")
    data = compress(given["codec"], b"".join(records), level) if stream is None else stream
    return pack_batch(data, count=len(records), **given)


def encoded(batch: BatchView) -> list[tuple[bytes, bytes]]:
    """Each record's bytes and key."""
    cursor, found = RecordCursor(batch), []
    while cursor.advance():
        found.append((bytes(cursor.encoded), cursor.key or b""))
    return found


def replaced(record: bytes, old: bytes, new: bytes) -> bytes:
    """An encoded record in which ``old`` is ``new``, of the same length."""
    assert len(old) == len(new) and record.count(old) == 1
    return record.replace(old, new)


def later(record: bytes, by: int) -> bytes:
    """An encoded record with another timestamp delta."""
    _, at = read_varint(record, 0)
    delta, rest = read_varint(record, at + 1, 64)
    body = bytearray(record[at : at + 1])
    write_varint(body, delta + by)
    body += record[rest:]
    out = bytearray()
    write_varint(out, len(body))
    return bytes(out + body)
