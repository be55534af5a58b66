"""Sends a broker's AlterPartition requests, like Kafka's AlterPartitionManager: one in flight at a time, with all
proposals that are waiting when it is sent (docs/kafka-semantics.md: AlterPartition).

Version 3 names the broker epoch of each member (KIP-903); a controller that supports only version 2 gets the plain ISR.
A request that fails as a whole is sent again after 50 ms, with the current broker epoch; so are partitions that a
response lacks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from milena.broker.replica.isr import Isr, Reaction, reaction
from milena.node.links.outgoing import ChannelError
from milena.node.links.request_sender import RequestSender
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError, error_name
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch
from milena.runtime.clock import Clock
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks

if TYPE_CHECKING:
    from milena.protocol.apis import (
        AlterPartitionRequestPartitionDataFields,
        AlterPartitionRequestTopicDataFields,
        AlterPartitionResponse,
        AlterPartitionResponsePartitionData,
    )

RETRY_SECONDS: Final = 0.05
MAX_IN_REQUEST: Final = 10_000
VERSION_WITH_EPOCHS: Final = 3
"""The version of AlterPartition that names the members' broker epochs."""


class Controller(RequestSender, Protocol):
    """The connection to the controller (``broker.controller_link.controller_link``)."""

    def offered(self, key: ApiKey) -> int | None:
        """The highest version of an API that the controller supports; None if unknown."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredIsr:
    """The state of a partition after the controller has accepted a proposal."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: Isr


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """The ISR that a leader proposes, with the broker epoch of each member (NO_EPOCH if unknown).

    ``done`` is called once, with the new state or the error code.
    """

    topic_id: UUID
    index: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    members: tuple[tuple[NodeId, BrokerEpoch], ...]
    done: Callable[[AlteredIsr | ErrorCode], None]


class IsrProposals:
    """Queues proposals, one per partition, and sends them until they are answered."""

    def __init__(
        self, controller: Controller, clock: Clock, node_id: NodeId, broker_epoch: Callable[[], BrokerEpoch]
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._waiting: dict[tuple[UUID, int], IsrProposal] = {}
        self._has_work = asyncio.Event()
        self._logged_reason: str | None = None
        self._log = get_logger("isr")

    def start(self, tasks: Tasks) -> None:
        tasks.keep(self._run, name="isr proposals")

    def submit(self, proposal: IsrProposal) -> bool:
        """Queue a proposal. Returns False, and does nothing, if an earlier one for the partition is not answered
        yet."""
        key = proposal.topic_id, proposal.index
        if key in self._waiting:
            return False
        self._waiting[key] = proposal
        self._has_work.set()
        return True

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            if not await self._send(list(islice(self._waiting.values(), MAX_IN_REQUEST))):
                await self._clock.sleep(RETRY_SECONDS)
            if not self._waiting:
                self._has_work.clear()

    async def _send(self, batch: list[IsrProposal]) -> bool:
        """Send one request and call ``done`` of the answered proposals. Returns False if a proposal must be sent
        again."""
        try:
            version = self._controller.offered(ApiKey.ALTER_PARTITION) or VERSION_WITH_EPOCHS
            response: AlterPartitionResponse = await self._controller.request(
                ApiKey.ALTER_PARTITION,
                version,
                broker_id=self._node_id,
                broker_epoch=self._broker_epoch(),
                topics=_by_topic(batch, version),
            )
        except (KafkaError, ChannelError) as error:
            return self._failed(str(error))
        if response.error_code:
            return self._failed(error_name(int(response.error_code)))
        self._logged_reason = None
        return self._answered(batch, response)

    def _failed(self, reason: str) -> bool:
        if reason != self._logged_reason:
            self._logged_reason = reason
            self._log.warning("ISR not changed yet", reason=reason)
        return False

    def _answered(self, batch: Iterable[IsrProposal], response: AlterPartitionResponse) -> bool:
        answers = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        complete = True
        for proposal in batch:
            key = proposal.topic_id, proposal.index
            answer = answers.get(key)
            if answer is None:
                complete = False
                continue
            del self._waiting[key]
            error = ErrorCode(int(answer.error_code))
            complete = complete and (not error or reaction(error) is not Reaction.RESEND)
            proposal.done(error or _altered_isr(answer))
        return complete


def _altered_isr(answer: AlterPartitionResponsePartitionData) -> AlteredIsr:
    return AlteredIsr(
        leader_epoch=LeaderEpoch(answer.leader_epoch),
        partition_epoch=PartitionEpoch(answer.partition_epoch),
        isr=tuple(NodeId(member) for member in answer.isr),
    )


def _by_topic(batch: Iterable[IsrProposal], version: int) -> list[AlterPartitionRequestTopicDataFields]:
    """The request's list of topics with their partitions."""
    topics: dict[UUID, list[AlterPartitionRequestPartitionDataFields]] = {}
    for proposal in batch:
        partition: AlterPartitionRequestPartitionDataFields = {
            "partition_index": proposal.index,
            "leader_epoch": proposal.leader_epoch,
            "partition_epoch": proposal.partition_epoch,
        }
        if version >= VERSION_WITH_EPOCHS:
            partition["new_isr_with_epochs"] = [
                {"broker_id": node, "broker_epoch": epoch} for node, epoch in proposal.members
            ]
        else:
            partition["new_isr"] = [node for node, _ in proposal.members]
        topics.setdefault(proposal.topic_id, []).append(partition)
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]
