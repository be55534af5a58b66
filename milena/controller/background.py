"""The controller's periodic tasks: expire broker sessions, elect preferred leaders, elect leaders uncleanly.

Differs from Kafka: a partition without a leader is elected uncleanly as soon as its configuration allows it, not only
at the next interval; a broker whose process has ended is fenced before its session expires
(``controller.process_watch``).
As in Kafka, ``leader.imbalance.per.broker.percentage`` has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from milena.controller.commands.brokers import Registration
from milena.controller.commands.heartbeats import expire_one, fence_gone
from milena.controller.commands.leader_elections import Swept, balance, elect_unclean
from milena.controller.process_watch import ProcessWatch
from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.node.api import Caller
from milena.node.metadata.image import BrokerImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import ConfigRecord, MetadataRecord
from milena.runtime.tasks import Tasks

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from milena.config.node_config import NodeConfig
    from milena.controller.log.metadata_log import MetadataLog
    from milena.runtime.context import Runtime

FENCE_CHECKS_PER_SESSION: Final = 8
UNCLEAN_ELECTIONS: Final = "unclean.leader.election.enable"


class Leader(Protocol):
    """The part of the controller that its periodic tasks use."""

    @property
    def config(self) -> NodeConfig: ...
    @property
    def log(self) -> FilteringBoundLogger: ...
    @property
    def metadata(self) -> MetadataLog: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def state(self) -> ControllerState: ...


class Background:
    """Owns the controller's periodic tasks. Call ``start`` once the controller is active."""

    def __init__(self, controller: Leader, tasks: Tasks) -> None:
        self._controller = controller
        self._state = controller.state
        self._metadata = controller.metadata
        self._clock = controller.runtime.clock
        self._log = controller.log
        self._tasks = tasks
        self._watch: ProcessWatch | None = None
        self._last_rejection: tuple[int, str] | None = None

    def start(self) -> None:
        config = self._controller.config
        if config.get_bool("broker.connection.loss.fencing.enable"):
            self._watch = ProcessWatch(self._controller.runtime, self._tasks, self._state, self._fence)
        self._tasks.keep(self._watch_sessions, name="broker sessions")
        unclean = config.get_int("unclean.leader.election.interval.ms") / 1000
        self._tasks.keep(partial(self._repeat, elect_unclean, unclean), name="unclean elections")
        if config.get_bool("auto.leader.rebalance.enable"):
            interval = config.get_int("leader.imbalance.check.interval.seconds")
            self._tasks.keep(partial(self._repeat, balance, interval), name="preferred leaders")

    def stop(self) -> None:
        """Stop watching connections: from now on they close because this node stops."""
        if self._watch is not None:
            self._watch.close()

    def heartbeat_received(self, broker_id: int, epoch: int, caller: Caller) -> None:
        """Record over which connection a broker sends its heartbeats."""
        if self._watch is not None:
            self._watch.heartbeat_received(broker_id, epoch, caller)

    def before_registration(self, request: Registration, host: str) -> None:
        """End the session of the broker's former incarnation if that process has ended (``ProcessWatch.succeeds``)."""
        former = self._state.image.brokers.get(request.broker_id)
        if self._watch is not None and former is not None and self._watch.succeeds(request, host):
            self._state.sessions.end(former.id, former.epoch)

    def registration_rejected(self, request: Registration, error: KafkaError) -> None:
        """Log why a registration was rejected, once per broker and reason: the response has no field for the message,
        and brokers retry for a long time."""
        rejection = (request.broker_id, error.text)
        if error.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION and rejection != self._last_rejection:
            self._last_rejection = rejection
            self._log.warning("broker registration rejected", broker=request.broker_id, reason=error.text)

    def configs_changed(self, records: Sequence[MetadataRecord]) -> None:
        """Hold unclean elections at once if ``records`` may allow them for partitions without a leader."""
        if self._state.index.leaderless_count and any(
            isinstance(record, ConfigRecord) and record.name == UNCLEAN_ELECTIONS for record in records
        ):
            self._tasks.attempt(self._sweep(elect_unclean), name="unclean elections")

    async def _watch_sessions(self) -> None:
        """Fence brokers whose sessions have expired, one at a time. If this process was suspended, heartbeats wait in
        its sockets: wait for an interval without a suspension, so that they are read first."""
        interval = max(self._state.sessions.timeout / FENCE_CHECKS_PER_SESSION, 0.001)
        while True:
            suspended = True
            while suspended:
                begun = self._clock.monotonic()
                await self._clock.sleep(interval)
                suspended = self._clock.monotonic() - begun > 2 * interval
            while (result := expire_one(self._state, self._clock.monotonic())).response is not None:
                self._log.warning("broker fenced, session expired", broker=result.response)
                await self._metadata.write(result.records, atomic=result.atomic)

    def _fence(self, broker: BrokerImage) -> None:
        self._log.warning("broker fenced, process ended", broker=broker.id, broker_epoch=broker.epoch)
        result = fence_gone(self._state, broker)
        self._metadata.write(result.records, atomic=result.atomic)

    async def _repeat(self, decide: Callable[[ControllerState], Result[Swept]], seconds: float) -> None:
        while True:
            await self._clock.sleep(seconds)
            await self._sweep(decide)

    async def _sweep(self, decide: Callable[[ControllerState], Result[Swept]]) -> None:
        """Repeat ``decide`` until it leaves nothing to do."""
        more = True
        while more:
            result = decide(self._state)
            more = result.response.more
            if result.records:
                self._log.info("leaders elected", how=decide.__name__, partitions=result.response.elected)
            await self._metadata.write(result.records, atomic=result.atomic)
