"""Broker heartbeats: fencing, unfencing and controlled shutdown (docs/kafka-semantics.md: Broker lifecycle).

    FENCED --caught up, wants no fence--> UNFENCED --leads and wants shutdown--> CONTROLLED_SHUTDOWN
       ^                                  |      \\                                |
       +--wants fence, session expires----+       +--leads nothing--> SHUTDOWN_NOW <--leads nothing, others caught up--+

SHUTDOWN_NOW fences the broker. A controlled shutdown is granted when all active brokers have read past the records
that moved its leaders. Differs from Kafka: a broker's session ends when its shutdown is granted, so that a restarted
broker can register immediately; in Kafka it is a duplicate until ``broker.session.timeout.ms`` has passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never
from uuid import UUID

from milena.controller.rules import broker_changes as leadership
from milena.controller.state.result import Result
from milena.controller.state.sessions import Progress
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import BrokerImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import CORDONED_DIRECTORIES
from milena.protocol.metadata_records import MetadataRecord
from milena.protocol.types import NodeId, Offset


class BrokerState(Enum):
    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()

    @property
    def fenced(self) -> bool:
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A BrokerHeartbeat request. ``cordoned_dirs`` is None if the version has no field for them."""

    broker_id: NodeId
    broker_epoch: int
    metadata_offset: int
    want_fence: bool = False
    want_shutdown: bool = False
    offline_dirs: tuple[UUID, ...] = ()
    cordoned_dirs: tuple[UUID, ...] | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    caught_up: bool
    fenced: bool
    should_shut_down: bool


def heartbeat(state: ControllerState, request: Heartbeat, now: float) -> Result[HeartbeatReply]:
    """Renew the session and change the broker's state. Raises KafkaError(STALE_BROKER_EPOCH)."""
    state.sessions.touch(request.broker_id, request.broker_epoch, now)
    broker = state.checked_broker(request.broker_id, request.broker_epoch)
    registered_at = state.registered_at.get(broker.id)
    if registered_at is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker.id} is not registered.")
    progress = state.sessions.progress(broker.id)
    caught_up = request.metadata_offset >= registered_at
    current = _current(broker, progress)
    following = _next(state, current, request, progress, caught_up)
    offline = request.offline_dirs if state.directories_supported else ()
    records = _transition(state, broker, following, offline) if following is not current else []
    records += leadership.directories_offline(state, broker, offline)
    if state.image.metadata_version >= CORDONED_DIRECTORIES:
        records += leadership.directories_cordoned(broker, request.cordoned_dirs)
    _note(state, broker, progress, request, following, Offset(state.next_offset + len(records) - 1))
    reply = HeartbeatReply(caught_up, following.fenced, following is BrokerState.SHUTDOWN_NOW)
    return Result(records, reply, atomic=False)


def expire_one(state: ControllerState, now: float) -> Result[NodeId | None]:
    """Fence one broker whose session has expired. One per call, so that the next decision sees its effect."""
    while (expired := state.sessions.pop_expired(now)) is not None:
        broker_id, epoch = expired
        broker = state.image.brokers.get(broker_id)
        if broker is not None and broker.epoch == epoch and not broker.fenced:
            state.sessions.progress(broker_id).shutdown_offset = None
            return Result(leadership.broker_fenced(state, broker), broker_id, atomic=False)
    return Result((), None)


def fence_gone(state: ControllerState, broker: BrokerImage) -> Result[None]:
    """Fence a broker whose process has ended, and end its session, so that the next incarnation may register at
    once."""
    state.sessions.progress(broker.id).shutdown_offset = None
    state.sessions.end(broker.id, broker.epoch)
    return Result(leadership.broker_fenced(state, broker), None, atomic=False)


def _current(broker: BrokerImage, progress: Progress) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.UNFENCED if progress.shutdown_offset is None else BrokerState.CONTROLLED_SHUTDOWN


def _next(
    state: ControllerState, current: BrokerState, request: Heartbeat, progress: Progress, caught_up: bool
) -> BrokerState:
    match current:
        case BrokerState.FENCED:
            if request.want_shutdown:
                return BrokerState.SHUTDOWN_NOW
            return BrokerState.UNFENCED if caught_up and not request.want_fence else BrokerState.FENCED
        case BrokerState.UNFENCED:
            if request.want_fence:
                return BrokerState.SHUTDOWN_NOW if request.want_shutdown else BrokerState.FENCED
            if not request.want_shutdown:
                return BrokerState.UNFENCED
            leads = state.index.leads(request.broker_id)
            return BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
        case BrokerState.CONTROLLED_SHUTDOWN:
            if state.index.leads(request.broker_id):
                return current
            # The broker may stop when all active brokers have read which brokers lead its former partitions.
            lowest = state.sessions.lowest_active_offset(state.image.brokers.values())
            known = lowest is None or (progress.shutdown_offset or 0) <= lowest
            return BrokerState.SHUTDOWN_NOW if known else current
        case BrokerState.SHUTDOWN_NOW:
            return current
        case _:
            assert_never(current)


def _transition(
    state: ControllerState, broker: BrokerImage, following: BrokerState, offline: Sequence[UUID]
) -> list[MetadataRecord]:
    match following:
        case BrokerState.FENCED | BrokerState.SHUTDOWN_NOW:
            return leadership.broker_fenced(state, broker)
        case BrokerState.UNFENCED:
            return leadership.broker_unfenced(state, broker, offline)
        case BrokerState.CONTROLLED_SHUTDOWN:
            return leadership.broker_stopping(state, broker)
        case _:
            assert_never(following)


def _note(
    state: ControllerState,
    broker: BrokerImage,
    progress: Progress,
    request: Heartbeat,
    following: BrokerState,
    last_offset: Offset,
) -> None:
    progress.metadata_offset = request.metadata_offset
    if following.fenced:
        progress.shutdown_offset = None
    elif following is BrokerState.CONTROLLED_SHUTDOWN and progress.shutdown_offset is None:
        progress.shutdown_offset = last_offset
    if following is BrokerState.SHUTDOWN_NOW:
        state.sessions.end(broker.id, broker.epoch)
