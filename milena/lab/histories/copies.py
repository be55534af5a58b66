"""Records that a log has several times: who caused it, according to the headers of their batches (KIP-98).

A broker can only detect a duplicate by producer id, epoch and sequence number. A client that sends a record again under
a new epoch, or under another producer id, writes it twice with any broker.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from milena.protocol.types import TopicPartition

SENT_AGAIN: Final = "sent again"
DUPLICATE: Final = "duplicate"
SENDS_AGAIN: Final = frozenset({"confluent-kafka"})
"""Client libraries that are known to send records again under a new epoch, with Apache Kafka as well
(docs/internals/chaos.md). Records of other libraries are duplicates in any case: the Java client and ours start a new
epoch only after errors that a correct broker does not return, or after they have given up the record."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The places of a value that the final log of a partition has several times."""

    partition: TopicPartition
    value: str
    copies: tuple[tuple[int, int, int, int], ...]
    """(offset, producer id, producer epoch, sequence number)."""


def duplicate(value: str, offsets: Collection[int], found: Copies | None) -> tuple[str, str]:
    """Return the anomaly of a value that was at several ``offsets``, and its description without the value. ``found``:
    what the final log says, None if it does not have the value several times."""
    text = f"is at {' and '.join(map(str, offsets))}"
    copies = found.copies if found is not None else ()
    if not set(offsets) <= {offset for offset, *_ in copies}:
        return DUPLICATE, text
    listed = ", ".join(
        f"producer id {producer} epoch {epoch} sequence {sequence} at {offset}"
        for offset, producer, epoch, sequence in copies
    )
    if len({(producer, epoch) for _, producer, epoch, _ in copies}) == len(copies):
        name = SENT_AGAIN if value.partition("/")[0] in SENDS_AGAIN else DUPLICATE
        return name, f"{text}: {listed}: the client sent it again under a new epoch or producer id"
    if len({copy[1:] for copy in copies}) == len(copies):
        return DUPLICATE, f"{text}: {listed}: the client sent it again in the same epoch with another sequence number"
    return DUPLICATE, f"{text}: {listed}: the broker has accepted a batch twice"
