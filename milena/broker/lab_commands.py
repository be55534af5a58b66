"""The lab commands of a broker, except those for fault rules: they inspect replicas.
``milena.node.serving.lab_catalog`` describes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.observation import Observation
from milena.broker.replica.description import describe
from milena.broker.transactions.overview import overview
from milena.broker.work_lab_commands import Worked, WorkLabCommands
from milena.node.metadata.image_digest import image_digest
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.control_records import ControlType, decode_control_type
from milena.protocol.records.records import Record, iter_records, offset_of
from milena.protocol.types import Offset
from milena.protocol.uuids import to_text

if TYPE_CHECKING:
    from milena.broker.metadata.own_changes import OwnChanges
    from milena.broker.reading.remote_reads import RemoteReads
    from milena.broker.transactions.coordinator import TransactionCoordinator
    from milena.node.metrics import Metrics

READ_BYTES: Final = 1 << 20


class Inspected(Worked, Protocol):
    """What the commands use of the broker."""

    @property
    def metrics(self) -> Metrics: ...
    @property
    def own_changes(self) -> OwnChanges: ...
    @property
    def remote_reads(self) -> RemoteReads | None: ...
    @property
    def transactions(self) -> TransactionCoordinator: ...


def _text(record: Record, *, is_control: bool) -> str | None:
    """Return a record's value, or the type of a control record."""
    if is_control:
        return ControlType(decode_control_type(record.key or b"")).name
    return None if record.value is None else record.value.decode(errors="replace")


class BrokerLabCommands:
    """The commands of one broker. Results are JSON; unknown values are null."""

    def __init__(self, node: Inspected) -> None:
        self._node = node

    def table(self) -> dict[str, Callable[..., object]]:
        own: dict[str, Callable[..., object]] = {
            "describe_partition": self.describe_partition,
            "read_log": self.read_log,
            "remote_segments": self.remote_segments,
            "remote_reads": self.remote_reads,
            "cleaner_offsets": self.cleaner_offsets,
            "metric": self.metric,
            "fetchers": self.fetchers,
            "follower_transitions": self.follower_transitions,
            "image": self.image,
            "transactions": self.transactions,
            "settle": self.settle,
            "erase_tier": self.erase_tier,
            "observe": Observation(self._node).observe,
        }
        return own | WorkLabCommands(self._node).table()

    def describe_partition(self, topic: str, partition: int) -> dict[str, object]:
        replica = self._node.partitions.get(topic, partition)
        return describe(replica) | {"fetcher": self._node.fetchers.describe_partition(topic, partition)}

    def fetchers(self) -> list[dict[str, object]]:
        return self._node.fetchers.describe()

    def follower_transitions(self, since: int = 0) -> list[dict[str, object]]:
        return self._node.fetchers.transitions.since(since)

    def read_log(
        self, topic: str, partition: int, from_: int = 0, max: int = 1000, markers: bool = False
    ) -> list[list[object]]:
        log = self._node.partitions.get(topic, partition).online_log
        records: list[list[object]] = []
        first = log.local_log_start_offset
        position = Offset(from_ if from_ > first else first)
        while len(records) < max and position < log.log_end_offset:
            data = log.read_bytes(position, READ_BYTES, upper=log.log_end_offset, min_one=True)
            if not data:
                break  # compaction has removed the last records
            for batch in iter_batches(data):
                if markers or not batch.is_control:
                    records += [
                        [offset, _text(record, is_control=batch.is_control), epoch]
                        for record in iter_records(batch)
                        for offset, epoch in ((offset_of(batch, record), batch.leader_epoch),)
                        if offset >= position
                    ]
                position = Offset(batch.last_offset + 1)
        return records[:max]

    async def remote_segments(self, topic: str, partition: int) -> list[dict[str, object]]:
        replica = self._node.partitions.get(topic, partition)
        if self._node.tier is None:
            return []
        from milena.broker.tier_lab_commands import segments_now

        return await segments_now(self._node.tier, replica)

    async def settle(self, offset: int) -> dict[str, list[str] | None]:
        await self._node.own_changes.wait_applied(offset)
        self._node.logs.tidy_soon()
        topics = None if self._node.tier is None else await self._node.tier.reset()
        return {"erasing": None if topics is None else [to_text(topic) for topic in topics]}

    async def erase_tier(self, topics: list[str]) -> dict[str, int]:
        if self._node.tier is None:
            return {"deleted": 0}
        from milena.broker.tier_lab_commands import erase_topics

        return {"deleted": await erase_topics(self._node.tier, topics)}

    def remote_reads(self) -> list[str]:
        reads = self._node.remote_reads
        return [] if reads is None else [to_text(segment) for segment in reads.reader.segments_read]

    async def cleaner_offsets(self, topic: str, partition: int) -> list[list[int | None]]:
        replica = self._node.partitions.get(topic, partition)
        if self._node.tier is None:
            return []
        from milena.broker.tier_lab_commands import resolved_now

        return await resolved_now(self._node.tier, replica)

    def metric(self, name: str, topic: str) -> dict[str, float]:
        return {"value": self._node.metrics.value(name, topic=topic)}

    def transactions(self, since: int | None = None) -> dict[str, object]:
        return overview(self._node.transactions, since)

    def image(self) -> dict[str, object]:
        image = self._node.image
        return {"offset": image.offset, "epoch": image.epoch, "digest": image_digest(image)}
