"""The work orders of the partitions that a broker leads: each has one at a time, from its issue until its result was
published or refused, or the time is over."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from milena.tiered.orders.order import MANIFEST, Issued
from milena.tiered.shared.tier import Tier
from milena.tiered.store.remote_storage import RemoteStorageError
from milena.tiered.store.staging import is_there
from milena.tiered.work.ordered_pass import TIMEOUT, OrderedPass
from milena.tiered.work.roles import ReplicaRole

ENABLE: Final = "remote.log.compaction.work.orders.enable"


class Look(Enum):
    """What has become of an order."""

    WAIT = auto()
    MADE = auto()
    OVER = auto()
    """Nothing comes of it any more."""


class WorkOrders:
    """One per broker."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier

    @property
    def wanted(self) -> bool:
        """Whether others are to clean."""
        return self._tier.staging is not None and self._tier.config().get_bool(ENABLE)

    async def issue(self, role: ReplicaRole, ordered: OrderedPass) -> None:
        """Write the order. Raises PassEnded, and the errors of a pass."""
        timeout = self._tier.config().get_int(TIMEOUT)
        issued = await ordered.issue(timeout)
        if issued is None:
            return
        role.issued = issued
        order = issued.order
        self._tier.events.info(
            "work order issued",
            topic=order.partition.topic,
            partition=order.partition.partition,
            order=order.name,
            first=order.first,
            end=order.end,
            segments=sum(len(group.sources) for group in order.groups),
            seconds=timeout // 1000,
        )

    async def look(self, role: ReplicaRole, issued: Issued) -> Look:
        """Raises RemoteStorageError."""
        order, staging = issued.order, self._tier.staging
        if not self.wanted or staging is None or role.leader_epoch != order.leader_epoch:
            return Look.OVER
        if self._tier.runtime.clock.time_ms() >= order.expires_at:
            self._tier.events.warning(
                "work order taken back: nothing was made of it in time",
                topic=order.partition.topic,
                partition=order.partition.partition,
                order=order.name,
            )
            return Look.OVER
        return Look.MADE if await is_there(staging, order.path(MANIFEST)) else Look.WAIT

    async def take_back(self, role: ReplicaRole) -> None:
        """Nothing more is taken of the order, and what is there of it is removed."""
        issued, role.issued = role.issued, None
        if issued is None or self._tier.staging is None:
            return
        try:
            await self._tier.staging.remove(issued.order.folder)
        except RemoteStorageError as error:
            self._tier.report("work order not removed", role.replica, error)
