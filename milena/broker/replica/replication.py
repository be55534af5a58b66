"""What all leaders of a broker share: metadata, the connection to the controller, the clock, and the ISR metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from milena.broker.replica.isr_proposals import Proposal
from milena.broker.replica.meters import IsrMeters
from milena.node.metadata.image import BrokerImage, MetadataImage
from milena.protocol.types import BrokerEpoch, NodeId
from milena.runtime.clock import Clock
from milena.runtime.tasks import Tasks


class Proposing(Protocol):
    """Where leaders submit their proposals (``broker.replica.isr_proposals``)."""

    def start(self, tasks: Tasks) -> None: ...

    def submit(self, proposal: Proposal) -> bool: ...


class Reviewed(Protocol):
    """A partition, as far as the check for lagging followers needs it."""

    def review(self) -> None: ...


class Replication:
    """One per broker. Times in milliseconds of the monotonic clock."""

    def __init__(
        self,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
        proposals: Proposing,
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
        self._newest: dict[NodeId, BrokerEpoch] = {}
        self._clock = clock

    def now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def broker(self, node: NodeId) -> BrokerImage | None:
        """A broker in the current metadata. Values that a decision needs together are read in one call
        (KAFKA-15221)."""
        return self._image().brokers.get(node)

    def is_stale(self, node: NodeId, epoch: BrokerEpoch) -> bool:
        """Whether a follower's fetch comes from an incarnation that is known to have ended; -1 is never stale."""
        if epoch < 0:
            return False
        registered = self.broker(node)
        newest = self._newest.get(node, epoch)
        if epoch < newest or (registered is not None and epoch < registered.epoch):
            return True
        self._newest[node] = epoch
        return False

    def start(self, tasks: Tasks, partitions: Iterable[Reviewed]) -> None:
        """Start sending proposals, and check for lagging followers every half of ``lag_ms``."""
        self.proposals.start(tasks)
        tasks.keep(partial(self._watch, partitions), name="isr expiration")

    async def _watch(self, partitions: Iterable[Reviewed]) -> None:
        while True:
            await self._clock.sleep(self.lag_ms / 2000)
            for partition in list(partitions):
                partition.review()
