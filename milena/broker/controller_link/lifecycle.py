"""The life of this broker in the controller's eyes (docs/kafka-semantics.md: Broker lifecycle): registration,
heartbeats, the way out.

::

    NOT_RUNNING -> STARTING -> RECOVERY -> RUNNING -> PENDING_CONTROLLED_SHUTDOWN -> SHUTTING_DOWN
                   registered,  caught up,   unfenced    wants to leave;               nothing is led
                   fenced       logs load                leaders move away

Until it is unfenced a broker speaks every 10 ms, then every ``broker.heartbeat.interval.ms``. What changes in between
(ready, an offline directory, the wish to leave) is said at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from socket import gethostname
from typing import TYPE_CHECKING, Final
from uuid import UUID

from milena.broker.controller_link.controller_link import ControllerLink
from milena.broker.controller_link.session import Session
from milena.config.listeners import SECURITY_PROTOCOLS
from milena.config.node_config import NodeConfig
from milena.config.tiered_rules import COMPACTION_ENABLE
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError, error_name
from milena.protocol.features import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, RANGES, REMOTE_COMPACTION
from milena.protocol.types import BrokerEpoch, NodeId
from milena.runtime.clock import Timer
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks

if TYPE_CHECKING:
    from milena.protocol.apis import (
        BrokerHeartbeatResponse,
        BrokerRegistrationListenerFields,
        BrokerRegistrationResponse,
    )

SUPPORTED_FEATURES: Final = {name: RANGES[name] for name in (ELR_VERSION, KRAFT_VERSION, METADATA_VERSION)}
"""What this broker can live with; a feature that is not named counts as level 0 alone."""
STARTING_INTERVAL: Final = 0.01
FAILURE_PAUSE: Final = 0.05
CONTROLLED_SHUTDOWN_TIMEOUT: Final = 30.0
"""Seconds that the controller may take to move this broker's leaderships."""
IN_KAFKA: Final = "Transitioning from RECOVERY to RUNNING"
"""What Kafka's BrokerLifecycleManager logs, and tools such as Testcontainers wait for."""


class BrokerState(IntEnum):
    """Kafka's numbers (gauge ``BrokerState``)."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says of itself. ``previous_epoch`` is the epoch it left in order with, None after a crash;
    ``compacts_tier``: it can host compacted topics in the tier."""

    node_id: NodeId
    cluster_id: str
    incarnation: UUID
    listeners: Sequence[BrokerRegistrationListenerFields]
    rack: str | None
    log_dirs: Sequence[UUID]
    previous_epoch: BrokerEpoch | None
    compacts_tier: bool = False

    @property
    def features(self) -> Mapping[str, tuple[int, int]]:
        """Levels by name, lowest and highest."""
        return {**SUPPORTED_FEATURES, REMOTE_COMPACTION: (0, 1)} if self.compacts_tier else SUPPORTED_FEATURES

    def hint(self, error: ErrorCode) -> str:
        """What a refusal may mean that has no message of its own."""
        if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            return f" (the log directories belong to cluster {self.cluster_id}, and that controller leads another one)"
        if error is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return f" (another broker runs with node.id={self.node_id})"
        if error is ErrorCode.UNSUPPORTED_VERSION and not self.compacts_tier:
            return f" (compacted topics in the tier need {COMPACTION_ENABLE}=true on all their brokers)"
        return ""


class Lifecycle:
    """Registers, keeps the session alive, and knows whether the broker is unfenced."""

    def __init__(
        self,
        runtime: Runtime,
        controller: ControllerLink,
        registration: Registration,
        *,
        metadata_offset: Callable[[], int],
        metadata_ahead: Callable[[], bool],
        metadata_current_at: Callable[[], float],
        heartbeat_interval: float,
        session_timeout: float,
        registration_timeout: float,
        failure_timeout: float,
    ) -> None:
        """``metadata_ahead``: the controller has lost metadata, so that this broker cannot follow it and asks to be
        fenced. ``metadata_current_at``: when all that was committed was last carried out here (monotonic seconds).
        ``failure_timeout``: seconds in which the controller must hear of a failed directory, or the broker ends."""
        self.state = BrokerState.NOT_RUNNING
        self.epoch = BrokerEpoch(-1)
        self.caught_up = asyncio.Event()
        """The image contains this broker's own registration."""
        self.unfenced = asyncio.Event()
        self.may_stop = asyncio.Event()
        """The controller has nothing more for this broker to do, or is not there to say so."""
        self._runtime = runtime
        self._controller = controller
        self._registration = registration
        self._metadata_offset = metadata_offset
        self._metadata_ahead = metadata_ahead
        self._session = Session(runtime.clock, session_timeout, metadata_current_at)
        self._interval = heartbeat_interval
        self._registration_timeout = registration_timeout
        self._failure_timeout = failure_timeout
        self._untold_since: float | None = None
        self._trouble: str | None = None
        self._wants_fence = True
        self._wants_shutdown = False
        self._consented = False
        self._offline_dirs: dict[UUID, None] = {}
        self._nudge = asyncio.Event()
        self._log = get_logger("lifecycle")

    def start(self, tasks: Tasks) -> None:
        self.state = BrokerState.STARTING
        tasks.keep(self._run, name="broker lifecycle")

    @property
    def in_session(self) -> bool:
        """Whether what this broker knows of its leadership can be no older than a session."""
        return self.unfenced.is_set() and self._session.is_current

    def ready_to_unfence(self) -> None:
        """Logs are loaded and the metadata is applied: ask for clients."""
        self._wants_fence = False
        self._nudge.set()

    def directory_failed(self, directory: UUID) -> None:
        """Tell the controller, so that replicas in it are led elsewhere."""
        self._offline_dirs[directory] = None
        if self._untold_since is None:
            self._untold_since = self._runtime.clock.monotonic()
        self._nudge.set()

    async def leave(self, timeout: float) -> bool:
        """Ask for a controlled shutdown and wait for the controller's consent. False if it does not come in time,
        or no controller answers; the caller stops all the same."""
        if self.state not in (BrokerState.RECOVERY, BrokerState.RUNNING):
            return False
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._wants_shutdown = True
        self._nudge.set()
        try:
            async with asyncio.timeout(timeout):
                await self.may_stop.wait()
        except TimeoutError:
            self._log.warning("no consent to the controlled shutdown", seconds=timeout)
        finally:
            self.state = BrokerState.SHUTTING_DOWN
        return self._consented

    async def _run(self) -> None:
        if self.epoch < 0:
            await self._register()
        while not self.may_stop.is_set():
            pause = await self._beat()
            await self._sleep(pause)

    async def _register(self) -> None:
        """Register, waiting while the controller keeps an earlier incarnation's session or is not there."""
        clock, mine = self._runtime.clock, self._registration
        deadline = clock.monotonic() + self._registration_timeout
        waiting = False
        while True:
            try:
                response: BrokerRegistrationResponse = await self._controller.request(
                    ApiKey.BROKER_REGISTRATION,
                    timeout=deadline - clock.monotonic(),
                    broker_id=mine.node_id,
                    cluster_id=mine.cluster_id,
                    incarnation_id=mine.incarnation,
                    listeners=mine.listeners,
                    features=[
                        {"name": name, "min_supported_version": low, "max_supported_version": high}
                        for name, (low, high) in mine.features.items()
                    ],
                    rack=mine.rack,
                    is_migrating_zk_broker=False,
                    log_dirs=mine.log_dirs,
                    previous_broker_epoch=-1 if mine.previous_epoch is None else mine.previous_epoch,
                )
                error = ErrorCode(int(response.error_code))
            except KafkaError as failure:
                error = failure.code
            if error is ErrorCode.NONE:
                self.epoch = BrokerEpoch(response.broker_epoch)
                self._log.info("registered", broker_epoch=self.epoch, controller=self._controller.address)
                return
            if waiting and error is ErrorCode.REQUEST_TIMED_OUT:
                error = ErrorCode.DUPLICATE_BROKER_REGISTRATION  # the last try had too little time to hear so again
            if error is not ErrorCode.DUPLICATE_BROKER_REGISTRATION or clock.monotonic() >= deadline:
                reason = f"broker {mine.node_id} could not register with {self._controller.address}: {error.name}"
                reason += mine.hint(error)
                self._runtime.fatal(reason, None)
                return
            if not waiting:
                waiting = True
                self._log.info("an earlier incarnation's session still runs", controller=self._controller.address)
            await self._sleep(FAILURE_PAUSE * 4)

    async def _beat(self) -> float:
        """One heartbeat; returns the seconds until the next."""
        told, sent = tuple(self._offline_dirs), self._runtime.clock.monotonic()
        try:
            response: BrokerHeartbeatResponse = await self._controller.request(
                ApiKey.BROKER_HEARTBEAT,
                timeout=max(self._interval * 2, 1.0),
                broker_id=self._registration.node_id,
                broker_epoch=self.epoch,
                current_metadata_offset=self._metadata_offset(),
                want_fence=self._wants_fence or self._metadata_ahead(),
                want_shut_down=self._wants_shutdown,
                offline_log_dirs=told,
            )
        except (KafkaError, ChannelError) as error:
            if self._wants_shutdown:  # it has been tried for longer than one interval: nobody is there to hand over to
                self.may_stop.set()
            return self._no_heartbeat(str(error))
        if response.error_code:
            if self.state is BrokerState.STARTING and response.error_code == ErrorCode.STALE_BROKER_EPOCH:
                # The controller's log was mended, or cut, since: nothing of this broker depends on its epoch yet.
                await self._register()
            return self._no_heartbeat(error_name(int(response.error_code)))
        self._session.answered(sent, fenced=response.is_fenced)
        if self._trouble is not None:
            self._log.info("heartbeats are answered again", broker_epoch=self.epoch)
            self._trouble = None
        if len(told) == len(self._offline_dirs):
            self._untold_since = None
        self._understand(response)
        if self.state in (BrokerState.STARTING, BrokerState.RECOVERY, BrokerState.PENDING_CONTROLLED_SHUTDOWN):
            return STARTING_INTERVAL
        return self._interval

    def _no_heartbeat(self, reason: str) -> float:
        """Say so once, and end where a failed directory could not be told for too long: it would still be led here."""
        if reason != self._trouble:
            self._trouble = reason
            self._log.warning("no heartbeat", reason=reason, broker_epoch=self.epoch)
        since = self._untold_since
        if since is not None and self._runtime.clock.monotonic() - since >= self._failure_timeout:
            self._runtime.fatal("the controller could not be told of a failed log directory", None)
        return FAILURE_PAUSE

    def _understand(self, response: BrokerHeartbeatResponse) -> None:
        """What a heartbeat's answer means for the state."""
        if response.should_shut_down and self._wants_shutdown:
            self._consented = True
            self.may_stop.set()
        if self.state is BrokerState.STARTING and response.is_caught_up:
            self.state = BrokerState.RECOVERY
            self.caught_up.set()
        if response.is_fenced:
            if self.unfenced.is_set() and not self._wants_shutdown:
                self._log.warning("fenced by the controller")
            self.unfenced.clear()
            return
        if not self.unfenced.is_set():
            self._log.info("unfenced", broker_epoch=self.epoch)
        self.unfenced.set()
        if self.state is BrokerState.RECOVERY:
            self.state = BrokerState.RUNNING

    async def _sleep(self, seconds: float) -> None:
        """Until ``seconds`` are over or there is something to say."""
        timer: Timer = self._runtime.clock.call_later(seconds, self._nudge.set)
        try:
            await self._nudge.wait()
        finally:
            timer.cancel()
            self._nudge.clear()


def advertised_listeners(
    config: NodeConfig, bound: Mapping[str, tuple[str, int]]
) -> list[BrokerRegistrationListenerFields]:
    """What a broker registers: its advertised listeners, with the port that was really bound where 0 was asked for, and
    with this machine's name where no host is given."""
    return [
        {
            "name": endpoint.name,
            "host": endpoint.host or gethostname(),
            "port": endpoint.port or bound[endpoint.name][1],
            "security_protocol": SECURITY_PROTOCOLS.index(endpoint.security_protocol),
        }
        for endpoint in config.advertised_listeners
    ]
