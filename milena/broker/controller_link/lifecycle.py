"""Registration, heartbeats and controlled shutdown of this broker, like Kafka's BrokerLifecycleManager
(docs/kafka-semantics.md: Broker lifecycle).

::

    NOT_RUNNING -> STARTING -> RECOVERY -> RUNNING -> PENDING_CONTROLLED_SHUTDOWN -> SHUTTING_DOWN
                   registered,  caught up,   unfenced    shutdown requested;           leads no partition
                   fenced       logs load                leaderships move away

Until it is unfenced, a broker sends a heartbeat every 10 ms, then every ``broker.heartbeat.interval.ms``. A change that
the controller must know (ready, an offline directory, a controlled shutdown) is sent immediately.
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
from milena.protocol.features import (
    DISABLED,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    REMOTE_COMPACTION,
    TRANSACTION_VERSION,
    ranges,
)
from milena.protocol.types import BrokerEpoch, NodeId
from milena.releases import KEY as KAFKA_VERSION
from milena.releases import NEWEST
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

SERVED_FEATURES: Final = (ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, TRANSACTION_VERSION)
"""Of any other feature a broker supports only level 0."""
STARTING_INTERVAL: Final = 0.01
"""Seconds between heartbeats until the broker is unfenced, and during a controlled shutdown."""
RETRY_SECONDS: Final = 0.05
"""Seconds until a failed heartbeat is retried."""
CONTROLLED_SHUTDOWN_TIMEOUT: Final = 30.0
"""Seconds that the controller may take to move this broker's leaderships."""
IN_KAFKA: Final = "The broker has been unfenced. Transitioning from RECOVERY to RUNNING."
"""A message of Kafka's BrokerLifecycleManager, for which tools such as Testcontainers wait."""


def supported_features(release: str) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest level of each feature of a broker that behaves like ``release``."""
    levels = ranges(release)
    return {name: levels[name] for name in SERVED_FEATURES if levels[name] != DISABLED}


class BrokerState(IntEnum):
    """The states, with Kafka's numbers (gauge ``BrokerState``)."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The contents of a BrokerRegistration request. ``previous_epoch``: the broker epoch before a clean shutdown; None
    after a crash. ``compacts_tier``: whether the broker supports compacted topics in the tier."""

    node_id: NodeId
    cluster_id: str
    incarnation: UUID
    listeners: Sequence[BrokerRegistrationListenerFields]
    rack: str | None
    log_dirs: Sequence[UUID]
    previous_epoch: BrokerEpoch | None
    compacts_tier: bool = False
    release: str = NEWEST
    """The release of Kafka that the broker behaves like."""

    @property
    def features(self) -> Mapping[str, tuple[int, int]]:
        """The lowest and highest supported level of each feature."""
        levels = supported_features(self.release)
        return {**levels, REMOTE_COMPACTION: (0, 1)} if self.compacts_tier else levels

    def hint(self, error: ErrorCode) -> str:
        """An explanation of an error code that comes without a message; may be empty."""
        if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            return f" (the log directories belong to cluster {self.cluster_id}, and that controller leads another one)"
        if error is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return f" (another broker runs with node.id={self.node_id})"
        if error is ErrorCode.UNSUPPORTED_VERSION and self.release != NEWEST:
            low, high = ranges(self.release)[METADATA_VERSION]
            return f" ({KAFKA_VERSION} is {self.release}, so this broker supports {METADATA_VERSION} {low} to {high})"
        if error is ErrorCode.UNSUPPORTED_VERSION and not self.compacts_tier:
            return f" (compacted topics in the tier need {COMPACTION_ENABLE}=true on all their brokers)"
        return ""


class Lifecycle:
    """Registers the broker, sends heartbeats, and tracks whether it is unfenced."""

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
        resumes: bool = False,
    ) -> None:
        """``metadata_ahead``: whether this broker has metadata that the controller lacks, so that it asks to be fenced.
        ``metadata_current_at``: when this broker had last applied all committed metadata (monotonic seconds).
        ``failure_timeout``: seconds within which a failed directory must be reported, or the broker ends. ``resumes``:
        the broker continues with an incarnation from a snapshot, so it does not ask to be fenced while it starts."""
        self.state = BrokerState.NOT_RUNNING
        self.epoch = BrokerEpoch(-1)
        self.caught_up = asyncio.Event()
        """Set when the image contains this broker's registration."""
        self.unfenced = asyncio.Event()
        self.may_stop = asyncio.Event()
        """Set when the controller has granted the shutdown, or cannot be reached for it."""
        self._runtime = runtime
        self._controller = controller
        self._registration = registration
        self._metadata_offset = metadata_offset
        self._metadata_ahead = metadata_ahead
        self._session = Session(runtime.clock, session_timeout, metadata_current_at)
        self._interval = heartbeat_interval
        self._registration_timeout = registration_timeout
        self._failure_timeout = failure_timeout
        self._unreported_since: float | None = None
        self._last_failure: str | None = None
        self._wants_fence = not resumes
        self._wants_shutdown = False
        self._is_granted = False
        self._offline_dirs: dict[UUID, str] = {}
        """The path of each failed log directory, by its id."""
        self._wake = asyncio.Event()
        self._log = get_logger("lifecycle")

    def start(self, tasks: Tasks) -> None:
        self.state = BrokerState.STARTING
        tasks.keep(self._run, name="broker lifecycle")

    @property
    def in_session(self) -> bool:
        """Whether the broker is unfenced and its metadata is not older than a session timeout."""
        return self.unfenced.is_set() and self._session.is_current

    def ready_to_unfence(self) -> None:
        """Ask the controller to unfence the broker: logs are loaded and the metadata is applied."""
        self._wants_fence = False
        self._wake.set()

    def directory_failed(self, directory: UUID, path: str) -> None:
        """Report a failed log directory to the controller, which elects other leaders for its replicas (KIP-858)."""
        self._offline_dirs[directory] = path
        if self._unreported_since is None:
            self._unreported_since = self._runtime.clock.monotonic()
        self._wake.set()

    async def controlled_shutdown(self, timeout: float) -> bool:
        """Request a controlled shutdown and wait at most ``timeout`` seconds until it is granted. Returns False if it
        was not, or if no controller answers; the caller stops in any case."""
        if self.state not in (BrokerState.RECOVERY, BrokerState.RUNNING):
            return False
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._wants_shutdown = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout):
                await self.may_stop.wait()
        except TimeoutError:
            self._log.warning("controlled shutdown timed out", seconds=timeout)
        finally:
            self.state = BrokerState.SHUTTING_DOWN
        return self._is_granted

    async def _run(self) -> None:
        if self.epoch < 0:
            await self._register()
        while not self.may_stop.is_set():
            pause = await self._send_heartbeat()
            await self._sleep(pause)

    async def _register(self) -> None:
        """Register the broker. Retry while the controller is not reachable or still has the session of an earlier
        incarnation, at most for the registration timeout; then the process ends."""
        clock, registration = self._runtime.clock, self._registration
        deadline = clock.monotonic() + self._registration_timeout
        waiting = False
        while True:
            try:
                response: BrokerRegistrationResponse = await self._controller.request(
                    ApiKey.BROKER_REGISTRATION,
                    timeout=deadline - clock.monotonic(),
                    broker_id=registration.node_id,
                    cluster_id=registration.cluster_id,
                    incarnation_id=registration.incarnation,
                    listeners=registration.listeners,
                    features=[
                        {"name": name, "min_supported_version": low, "max_supported_version": high}
                        for name, (low, high) in registration.features.items()
                    ],
                    rack=registration.rack,
                    is_migrating_zk_broker=False,
                    log_dirs=registration.log_dirs,
                    previous_broker_epoch=-1 if registration.previous_epoch is None else registration.previous_epoch,
                )
                error = ErrorCode(int(response.error_code))
            except KafkaError as failure:
                error = failure.code
            if error is ErrorCode.NONE:
                self.epoch = BrokerEpoch(response.broker_epoch)
                self._log.info("registered", broker_epoch=self.epoch, controller=self._controller.address)
                return
            if waiting and error is ErrorCode.REQUEST_TIMED_OUT:
                error = ErrorCode.DUPLICATE_BROKER_REGISTRATION  # the last attempt had no time for a response
            if error is not ErrorCode.DUPLICATE_BROKER_REGISTRATION or clock.monotonic() >= deadline:
                address = self._controller.address
                reason = f"broker {registration.node_id} could not register with {address}: {error.name}"
                reason += registration.hint(error)
                self._runtime.fatal(reason, None)
                return
            if not waiting:
                waiting = True
                self._log.info("waiting for the session of an earlier incarnation", controller=self._controller.address)
            await self._sleep(RETRY_SECONDS * 4)

    async def _send_heartbeat(self) -> float:
        """Send one heartbeat. Returns the seconds until the next one."""
        reported, sent = tuple(self._offline_dirs), self._runtime.clock.monotonic()
        try:
            response: BrokerHeartbeatResponse = await self._controller.request(
                ApiKey.BROKER_HEARTBEAT,
                timeout=max(self._interval * 2, 1.0),
                broker_id=self._registration.node_id,
                broker_epoch=self.epoch,
                current_metadata_offset=self._metadata_offset(),
                want_fence=self._wants_fence or self._metadata_ahead(),
                want_shut_down=self._wants_shutdown,
                offline_log_dirs=reported,
            )
        except (KafkaError, ChannelError) as error:
            if self._wants_shutdown:  # no controller is reachable that could move the leaderships
                self.may_stop.set()
            return self._heartbeat_failed(str(error))
        if response.error_code:
            if self.state is BrokerState.STARTING and response.error_code == ErrorCode.STALE_BROKER_EPOCH:
                # The controller's log was repaired or truncated, and has lost the registration. The broker may register
                # again, since nothing depends on its epoch yet.
                await self._register()
            return self._heartbeat_failed(error_name(int(response.error_code)))
        self._session.answered(sent, fenced=response.is_fenced)
        if self._last_failure is not None:
            self._log.info("heartbeats succeed again", broker_epoch=self.epoch)
            self._last_failure = None
        if len(reported) == len(self._offline_dirs):
            self._unreported_since = None
        self._apply_response(response)
        if self.state in (BrokerState.STARTING, BrokerState.RECOVERY, BrokerState.PENDING_CONTROLLED_SHUTDOWN):
            return STARTING_INTERVAL
        return self._interval

    def _heartbeat_failed(self, reason: str) -> float:
        """Log a failure once per reason. End the process if a failed directory could not be reported in time, because
        the controller would not elect other leaders for its replicas. Returns the seconds until the next heartbeat."""
        if reason != self._last_failure:
            self._last_failure = reason
            self._log.warning("heartbeat failed", reason=reason, broker_epoch=self.epoch)
        since = self._unreported_since
        if since is not None and self._runtime.clock.monotonic() - since >= self._failure_timeout:
            failed = ", ".join(self._offline_dirs.values())
            self._runtime.fatal(
                f"the failure of log directory {failed} could not be reported to the controller at "
                f"{self._controller.address} within log.dir.failure.timeout.ms ({reason})",
                None,
            )
        return RETRY_SECONDS

    def _apply_response(self, response: BrokerHeartbeatResponse) -> None:
        """Update the state from a heartbeat response."""
        if response.should_shut_down and self._wants_shutdown:
            self._is_granted = True
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
        """Sleep for ``seconds``, or until a heartbeat must be sent immediately."""
        timer: Timer = self._runtime.clock.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
            self._wake.clear()


def advertised_listeners(
    config: NodeConfig, bound: Mapping[str, tuple[str, int]]
) -> list[BrokerRegistrationListenerFields]:
    """The listeners of the registration. Port 0 is replaced by the port that was bound, a missing host by the host name
    of this machine."""
    return [
        {
            "name": endpoint.name,
            "host": endpoint.host or gethostname(),
            "port": endpoint.port or bound[endpoint.name][1],
            "security_protocol": SECURITY_PROTOCOLS.index(endpoint.security_protocol),
        }
        for endpoint in config.advertised_listeners
    ]
