"""A broker's copy of the metadata log: fetched from the quorum's leader, kept on disk, replayed
(docs/kafka-semantics.md: Fetches of observers).

::

                    unknown leader                       snapshot needed
    find a leader -----------------> fetch records <----------------------> fetch the snapshot
         ^   try the next address        |  append, truncate, replay below the high watermark
         +-------------------------------+  error, time-out, a new leader

The observer is the one writer of its log. It never votes, and Kafka's controller cannot tell it from Kafka's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final
from uuid import UUID

from milena.node.links.outgoing import Channel, ChannelError
from milena.node.metadata.committed_offset import CommittedOffsetFile
from milena.node.metadata.loader import MetadataLoader
from milena.node.metadata.raft_fetch import (
    Diverged,
    FetchRefused,
    NeedsSnapshot,
    NewLeader,
    Outcome,
    Quorum,
    Records,
    Stale,
    decide,
    fetch_request,
)
from milena.node.metadata.snapshot_fetch import fetch_snapshot
from milena.node.metadata.snapshot_keeper import SnapshotKeeper
from milena.node.metadata.snapshots import SnapshotStore
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError, error_name
from milena.protocol.requests.fetch import FetchPartition, decode_fetch_response, encode_fetch_request
from milena.protocol.types import ZERO_UUID, LeaderEpoch, NodeId, Offset
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.storage.log.unified_log import UnifiedLog

MAX_WAIT_MS: Final = 500
MAX_BYTES: Final = 1 << 20
NEWEST_FETCH: Final = 18
OLDEST_FETCH: Final = 12
STALE_AT_MOST: Final = 5
"""An answer from an epoch lower than ours after this many consecutive failures: it is not a former leader, but one that
lost metadata."""
TURNS_AT_ONCE: Final = 8
"""The number of consecutive new leaders and truncations that are followed without a pause."""
FIRST_PAUSE: Final = 0.02
LAST_PAUSE: Final = 1.0
DISK_PAUSE: Final = 10.0
"""Seconds to wait after a snapshot could not be written to disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverOptions:
    """The observer's identity and its peers. ``voters`` is ``controller.quorum.voters``; ``bootstrap`` lists further
    addresses.

    ``fetch_timeout`` (seconds) is ``controller.quorum.fetch.timeout.ms``: after it, another address is tried.
    """

    node_id: NodeId
    cluster_id: str | None
    directory_id: UUID = ZERO_UUID
    voters: Mapping[int, tuple[str, int]]
    bootstrap: Sequence[tuple[str, int]] = ()
    fetch_timeout: float = 2.0


class Observer:
    """Replicates the quorum's log to ``log`` and ``loader``. ``run`` is its only task."""

    def __init__(
        self,
        runtime: Runtime,
        options: ObserverOptions,
        log: UnifiedLog,
        snapshots: SnapshotStore,
        loader: MetadataLoader,
        keeper: SnapshotKeeper,
    ) -> None:
        self.quorum = Quorum(None, self._log_epoch(log, snapshots))
        self.ahead = False
        """Whether the leader lacks committed records that are applied here: it cannot be followed."""
        self._runtime = runtime
        self._options = options
        self._log = log
        self._snapshots = snapshots
        self._loader = loader
        self._keeper = keeper
        self._addresses = list(dict.fromkeys([*options.voters.values(), *options.bootstrap]))
        assert self._addresses, "an observer needs the address of a controller"
        self._next_address = 0
        self._endpoints: dict[int, tuple[str, int]] = dict(options.voters)
        self._channel: Channel | None = None
        self._committed = CommittedOffsetFile(runtime.disk, log.folder)
        self._known = Offset(-1)
        """The committed offset when this node last ran, as far as it is known."""
        self.current_at = -inf
        """When the image was last known to contain everything committed (monotonic seconds)."""
        self._asked_at = 0.0
        self._failures = 0
        self._turns = 0
        """New leaders and truncations since records were last received."""
        self._logger = get_logger("observer", node=options.node_id)

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """The leader's address; None while it is unknown."""
        leader = self.quorum.leader
        return None if leader is None else self._endpoints.get(leader)

    async def run(self) -> None:
        """Fetch forever. Raises if the log or a snapshot contradicts what was applied: the node cannot continue."""
        self._start()
        try:
            while True:
                channel = self._open()
                try:
                    outcome: Outcome | None = await self._fetch(channel)
                    if isinstance(outcome, NeedsSnapshot):
                        outcome = await self._fetch_snapshot(channel, outcome)
                except ChannelError as error:
                    await self._try_elsewhere(str(error))
                except KafkaError as error:
                    if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                        raise
                    await self._try_elsewhere(str(error))
                else:
                    await self._act(outcome)
        finally:
            self._drop_channel()
            self._committed.close()

    def _start(self) -> None:
        """Reconcile log and snapshots after a crash, and load what is known to be committed."""
        self._known = self._committed.read() or self._known
        self._load_snapshot()
        log, latest = self._log, self._snapshots.latest()
        if latest is not None and latest.end_offset > log.log_end_offset:
            log.truncate_fully_and_start_at(latest.end_offset)
        elif log.log_start_offset > (0 if latest is None else latest.end_offset):
            self._logger.warning("metadata log without the snapshot before it: fetching it anew", log=repr(log))
            log.truncate_fully_and_start_at(Offset(0))

    def _load_snapshot(self) -> None:
        """Load the latest valid snapshot. The leader has others, or the records."""
        while (latest := self._snapshots.latest()) is not None:
            try:
                self._loader.load_snapshot()
                return
            except ValueError as error:  # including damaged batches and contradictory records
                self._logger.warning("metadata snapshot set aside: it cannot be used", reason=str(error))
                self._snapshots.set_aside(latest)

    async def _act(self, outcome: Outcome | None) -> None:
        match outcome:
            case None:
                self._failures = self._turns = 0
            case Records(data, high_watermark):
                self._turns = 0
                await self._append(data, high_watermark)
            case Diverged(epoch=epoch, end_offset=end_offset):
                self._turns += 1
                if not self._truncate(epoch, end_offset):
                    await self._try_elsewhere("its log lacks committed records")
                elif self._turns > TURNS_AT_ONCE:
                    await self._pause()
            case NewLeader(quorum, endpoint):
                self._turns += 1
                self._follow(quorum, endpoint)
                if quorum.leader is None:
                    await self._try_elsewhere("the leader is not known there")
                elif self._turns > TURNS_AT_ONCE:
                    await self._pause()  # it names one leader after the other
            case Stale(epoch):
                if self._failures >= STALE_AT_MOST:
                    self._is_ahead(epoch, None)
                await self._try_elsewhere(f"epoch {epoch} is behind ours")
            case FetchRefused(code):
                await self._try_elsewhere(error_name(code))
            case NeedsSnapshot():
                raise AssertionError("a snapshot was asked for and fetched already")

    async def _fetch(self, channel: Channel) -> Outcome:
        """One fetch at the end of our log. Raises ChannelError, KafkaError."""
        options, log = self._options, self._log
        await channel.connect()
        version = channel.choose(ApiKey.FETCH, at_most=NEWEST_FETCH)
        if version < OLDEST_FETCH:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{channel!r} serves Fetch only up to version {version}")
        request = fetch_request(
            cluster_id=options.cluster_id,
            node_id=options.node_id,
            epoch=self.quorum.epoch,
            partition=FetchPartition(
                partition=0,
                fetch_offset=log.log_end_offset,
                max_bytes=MAX_BYTES,
                last_fetched_epoch=self._last_epoch(),
                log_start_offset=log.log_start_offset,
                replica_directory_id=options.directory_id,
                high_watermark=self._loader.high_watermark,
            ),
            max_wait_ms=MAX_WAIT_MS,
        )
        quorum = self.quorum
        self._asked_at = self._runtime.clock.monotonic()

        def take(body: memoryview) -> Outcome:
            outcome = decide(quorum, decode_fetch_response(version, body))
            if isinstance(outcome, Records):
                # The memory is the receive buffer's: copy what is kept.
                return Records(memoryview(bytes(outcome.data)), outcome.high_watermark)
            return outcome

        return await channel.request_raw(
            ApiKey.FETCH, version, [encode_fetch_request(version, request)], take, timeout=options.fetch_timeout
        )

    async def _fetch_snapshot(self, channel: Channel, needed: NeedsSnapshot) -> Outcome | None:
        """Fetch a snapshot, then reset the log and the image to it; None if that is done, or is to be retried."""
        if needed.snapshot.end_offset < max(self._loader.high_watermark, 1) or needed.snapshot.epoch < 0:
            return FetchRefused(ErrorCode.SNAPSHOT_NOT_FOUND)
        self._logger.info("fetching a snapshot", end_offset=needed.snapshot.end_offset, epoch=needed.snapshot.epoch)
        try:
            outcome = await fetch_snapshot(
                channel,
                self._snapshots,
                needed.snapshot,
                self.quorum,
                node_id=self._options.node_id,
                cluster_id=self._options.cluster_id,
            )
        except ChannelError:
            raise
        except OSError as error:  # for example, a full disk: the present state is kept and may be served
            self._logger.error("metadata snapshot cannot be written", reason=str(error), again_in_seconds=DISK_PAUSE)
            await self._runtime.clock.sleep(DISK_PAUSE)
            return None
        if outcome is None:
            self._log.truncate_fully_and_start_at(needed.snapshot.end_offset)
            self._snapshots.delete_before(needed.snapshot)
            self._loader.load_snapshot()
        return outcome

    async def _append(self, data: memoryview, high_watermark: Offset) -> None:
        if len(data):
            try:
                self._log.append_as_follower(data, leader_epoch=self.quorum.epoch)
            except KafkaError as error:
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    raise
                await self._try_elsewhere(f"its records cannot follow ours: {error}")
                return
        self._failures = 0
        if self.ahead:
            self.ahead = False
            self._logger.info("the leader has the metadata that was committed again", epoch=self.quorum.epoch)
        committed = Offset(min(high_watermark, self._log.log_end_offset))
        if committed > self._loader.high_watermark:
            self._log.set_high_watermark(committed)
            self._committed.write(committed)
            self._loader.committed(committed)
            while self._loader.step():
                await self._runtime.clock.sleep(0)
            await self._keeper.tend()
        if self._loader.high_watermark >= high_watermark:
            self.current_at = self._asked_at

    def _truncate(self, epoch: LeaderEpoch, end_offset: Offset) -> bool:
        """KIP-595: truncate to the last common offset of our log and the leader's; False if that is below a committed
        offset."""
        log = self._log
        ours, our_end = log.leader_epoch_end_offset(epoch)
        target = end_offset if our_end is None else min(our_end, end_offset) if ours == epoch else our_end
        target = Offset(min(target, log.log_end_offset))
        if target < max(self._loader.high_watermark, min(self._known, log.log_end_offset), 0):
            self._is_ahead(epoch, target)
            return False
        self._logger.warning("truncating the metadata log", offset=target, log_end=log.log_end_offset, epoch=epoch)
        log.truncate_to(target)
        return True

    def _is_ahead(self, epoch: int, diverges_at: Offset | None) -> None:
        """Committed and applied records cannot be taken back: a leader that has lost them is not followed."""
        if not self.ahead:
            self._logger.error(
                "the controller lacks committed metadata: this node waits. Repair its log from the copy here "
                "(`milena metadata repair`); to give up what it lacks, stop this node and remove the copy",
                copy=self._log.folder,
                diverges_at=diverges_at,
                committed=max(self._loader.high_watermark, self._known),
                epoch=epoch,
                our_epoch=self._last_epoch(),
            )
        self.ahead = True

    def _follow(self, quorum: Quorum, endpoint: tuple[str, int] | None) -> None:
        self.quorum = quorum
        if quorum.leader is not None and endpoint is not None:
            self._endpoints[quorum.leader] = endpoint
        address = self.leader_address
        if self._channel is not None and address is not None and (self._channel.host, self._channel.port) != address:
            self._drop_channel()
        say = self._logger.debug if self._failures else self._logger.info
        say("leader of the metadata log", leader=quorum.leader, epoch=quorum.epoch)

    async def _try_elsewhere(self, reason: str) -> None:
        """After a failure: forget the leader's address for now, and ask the next one after a pause."""
        if not self._failures:
            self._logger.debug("metadata fetch failed", reason=reason)
        leader = self.leader_address
        self._drop_channel_unless_only()
        if leader is not None:
            self.quorum = Quorum(None, self.quorum.epoch)
        await self._pause()

    async def _pause(self) -> None:
        """Pause, longer after each failure."""
        self._failures += 1
        longest = min(FIRST_PAUSE * 2 ** min(self._failures, 10), LAST_PAUSE)
        await self._runtime.clock.sleep(longest * self._runtime.random.uniform(0.5, 1.0))

    def _open(self) -> Channel:
        if self._channel is None:
            address = self.leader_address
            if address is None:
                address = self._addresses[self._next_address % len(self._addresses)]
                self._next_address += 1
            self._channel = Channel(
                self._runtime,
                *address,
                f"raft-client-{self._options.node_id}",
                connect_timeout=self._options.fetch_timeout,
            )
        return self._channel

    def _drop_channel_unless_only(self) -> None:
        if len(self._addresses) > 1:
            self._drop_channel()

    def _drop_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _last_epoch(self) -> int:
        """The epoch of the last record: of the log, of the snapshot before it, or 0 if there is none."""
        return self._log_epoch(self._log, self._snapshots)

    @staticmethod
    def _log_epoch(log: UnifiedLog, snapshots: SnapshotStore) -> LeaderEpoch:
        latest = log.epochs.latest_entry
        snapshot = snapshots.latest()
        if latest is not None:
            return latest.epoch
        return snapshot.epoch if snapshot is not None else LeaderEpoch(0)
