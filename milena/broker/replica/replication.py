"""What all partitions of a broker share for replication: metadata, the queue of ISR proposals, the clock, metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from milena.broker.replica.isr_proposals import IsrProposal
from milena.broker.replica.meters import IsrMeters
from milena.node.metadata.image import BrokerImage, MetadataImage
from milena.protocol.types import BrokerEpoch, NodeId
from milena.runtime.clock import Clock
from milena.runtime.tasks import Tasks

PARTITIONS_PER_YIELD: Final = 1_000
"""Partitions whose ISR is checked before the loop runs other work."""


class ProposalQueue(Protocol):
    """Sends the leaders' ISR proposals (``broker.replica.isr_proposals``)."""

    def start(self, tasks: Tasks) -> None: ...

    def submit(self, proposal: IsrProposal) -> bool: ...


class IsrPartition(Protocol):
    """A partition whose ISR is checked periodically."""

    def check_isr(self) -> None: ...


class Replication:
    """One per broker. Times are milliseconds of the monotonic clock."""

    def __init__(
        self,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
        proposals: ProposalQueue,
        meters: IsrMeters,
        clock: Clock,
        *,
        lag_ms: int,
        broker_epoch: Callable[[], BrokerEpoch],
    ) -> None:
        """``lag_ms``: ``replica.lag.time.max.ms``."""
        self.node_id = node_id
        self.proposals = proposals
        self.meters = meters
        self.lag_ms = lag_ms
        self.broker_epoch = broker_epoch
        self._image = image
        self._latest_epochs: dict[NodeId, BrokerEpoch] = {}
        self._clock = clock

    def now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def broker(self, node: NodeId) -> BrokerImage | None:
        """The registration of a broker in the current metadata; None if it is unknown. A decision that needs several of
        its values must take them from one call, since the metadata may change in between (KAFKA-15221)."""
        return self._image().brokers.get(node)

    def is_stale(self, node: NodeId, epoch: BrokerEpoch) -> bool:
        """Whether a follower's fetch is from an earlier incarnation than the metadata or another fetch has. Broker
        epoch -1 is never stale."""
        if epoch < 0:
            return False
        registered = self.broker(node)
        latest = self._latest_epochs.get(node, epoch)
        if epoch < latest or (registered is not None and epoch < registered.epoch):
            return True
        self._latest_epochs[node] = epoch
        return False

    def start(self, tasks: Tasks, partitions: Iterable[IsrPartition]) -> None:
        """Start sending proposals, and checking for lagging followers every ``lag_ms`` / 2."""
        self.proposals.start(tasks)
        tasks.keep(partial(self._check_isrs, partitions), name="isr expiration")

    async def _check_isrs(self, partitions: Iterable[IsrPartition]) -> None:
        while True:
            await self._clock.sleep(self.lag_ms / 2000)
            for number, partition in enumerate(list(partitions), 1):
                partition.check_isr()
                if not number % PARTITIONS_PER_YIELD:
                    await self._clock.sleep(0)
