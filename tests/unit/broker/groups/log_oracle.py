"""What a partition of ``__consumer_offsets`` contains, by Kafka's rules: the last record of each key, where the records
of a transaction count from its commit marker on."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from milena.broker.groups.transactional_offsets import TransactionalOffsets
from milena.protocol.records import coordinator_records as records
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.control_records import CommitMarker, control_of
from milena.protocol.records.records import iter_records


class Batch(NamedTuple):
    """The keys and values of a batch, whose keys are unique."""

    pairs: dict[Any, Any]
    producer: int
    """The producer of a transaction, or -1."""
    commit: bool | None
    """For a marker."""


class Replayed(NamedTuple):
    """What a log contains. Offsets are those of topic ``t``, by group and partition."""

    offsets: dict[tuple[str, int], int]
    generations: dict[str, records.GroupMetadataValue]
    pending: dict[tuple[str, int, int], tuple[bool, int]]
    """The offsets of open transactions, by group, partition and producer, and whether a commit would apply them."""


@lru_cache(maxsize=1_000)
def parsed(batch: bytes) -> Batch:
    (view,) = iter_batches(memoryview(batch))
    read = list(iter_records(view))
    if view.is_control:
        return Batch({}, view.producer_id, isinstance(control_of(read[0]), CommitMarker))
    keys = [records.decode_key(record.key or b"") for record in read]
    pairs = {key: records.decode_value(key, record.value) for key, record in zip(keys, read, strict=True)}
    return Batch(pairs, view.producer_id, None)


def replay(batches: list[bytes]) -> Replayed:
    """Kafka's rule: a commit marker applies an offset unless the group's offset has a later record."""
    generations: dict[str, records.GroupMetadataValue] = {}
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    pending: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}
    for position, batch in enumerate(batches):
        pairs, producer, commit = parsed(batch)
        for key, ended in pending.pop(producer, {}).items() if commit is not None else ():
            if commit and ended[0] > offsets.get(key, (-1, 0))[0]:
                offsets[key] = ended
        for key, value in pairs.items():
            if isinstance(key, records.GroupMetadataKey):
                if value is None:
                    generations.pop(key.group, None)
                else:
                    generations[key.group] = value
            elif value is None:
                for of_producer in (offsets, *pending.values()):
                    of_producer.pop((key.group, key.partition), None)
            else:
                target = offsets if producer < 0 else pending.setdefault(producer, {})
                target[key.group, key.partition] = position, value.offset
    return Replayed(
        {key: offset for key, (_, offset) in offsets.items()},
        generations,
        {
            (*key, producer): (position > offsets.get(key, (-1, 0))[0], offset)
            for producer, of_producer in pending.items()
            for key, (position, offset) in of_producer.items()
        },
    )


def pending_in(transactional: TransactionalOffsets) -> dict[tuple[str, int, int], tuple[bool, int]]:
    return {
        (group, partition[1], producer): (applies, committed.offset)
        for (group, partition, producer), (applies, committed) in transactional.pending().items()
    }


def unstable_in(batches: list[bytes], high_watermark: int) -> set[int]:
    """The partitions of group ``g`` whose offsets must not be returned if RequireStable is set: those with an open
    transaction, or an uncommitted marker that has changed the offset."""
    unstable = {index for _, index, _ in replay(batches).pending}
    for end in range(high_watermark, len(batches)):
        if parsed(batches[end]).commit:
            before, after = replay(batches[:end]).offsets, replay(batches[: end + 1]).offsets
            unstable |= {key[1] for key, offset in after.items() if before.get(key) != offset}
    return unstable
