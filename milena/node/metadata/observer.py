"""The observer of the metadata log in a broker: fetches the log from the quorum's leader, appends and replays it
(docs/kafka-semantics.md: Fetches of observers; KIP-595).

::

                    unknown leader                       snapshot needed
    find a leader -----------------> fetch records <----------------------> fetch the snapshot
         ^   try the next address        |  append, truncate, replay below the high watermark
         +-------------------------------+  error, time-out, a new leader

The observer is the only writer of its log. It never votes. To Kafka's controller it looks like one of Kafka's brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final
from uuid import UUID

from milena.node.links.outgoing import Channel, ChannelError
from milena.node.metadata.committed_offset import CommittedOffsetFile
from milena.node.metadata.fetch_response import (
    Diverged,
    FetchRefused,
    NeedsSnapshot,
    NewLeader,
    Outcome,
    Quorum,
    Records,
    StaleAnswer,
    decide,
    fetch_request,
)
from milena.node.metadata.loader import MetadataLoader
from milena.node.metadata.raft_meters import NONE, OBSERVER, RaftMeters, RaftView
from milena.node.metadata.snapshot_fetch import fetch_snapshot
from milena.node.metadata.snapshot_keeper import SnapshotKeeper
from milena.node.metadata.snapshots import SnapshotStore
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import run_in_steps
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
MAX_STALE_ANSWERS: Final = 5
"""After this many consecutive failures, an answer from a lower epoch than ours is not from a former leader: the quorum
has lost metadata."""
MAX_UNPAUSED_CHANGES: Final = 8
"""The number of consecutive new leaders and truncations after which the next fetch is not delayed."""
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
        """Whether the leader lacks committed records that are applied here, so that its log is not followed."""
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
        self._last_committed = Offset(-1)
        """The committed offset in the file that the previous process has written; -1 if unknown."""
        self.current_at = -inf
        """The latest time (monotonic seconds) at which the image is known to have contained all committed records."""
        self._requested_at = 0.0
        self._failures = 0
        self._changes = 0
        """The number of new leaders and truncations since the last answer with records."""
        self.meters = RaftMeters(runtime.clock)
        self._logger = get_logger("observer", node=options.node_id)

    def view(self) -> RaftView:
        """Return the state of this node in the quorum."""
        quorum, log = self.quorum, self._log
        leader = NONE if quorum.leader is None else quorum.leader
        return RaftView(
            OBSERVER, leader, quorum.epoch, NONE, self._loader.high_watermark, log.log_end_offset, self._last_epoch()
        )

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """The leader's address; None while it is unknown."""
        leader = self.quorum.leader
        return None if leader is None else self._endpoints.get(leader)

    async def run(self) -> None:
        """Fetch until cancelled. Raises if the log or a snapshot contradicts the applied records; the node must then
        stop."""
        self._start()
        try:
            while True:
                channel = self._open()
                try:
                    outcome: Outcome | None = await self._fetch(channel)
                    if isinstance(outcome, NeedsSnapshot):
                        outcome = await self._fetch_snapshot(channel, outcome)
                except ChannelError as error:
                    await self._try_next_address(str(error))
                except KafkaError as error:
                    if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                        raise
                    await self._try_next_address(str(error))
                else:
                    await self._apply(outcome)
        finally:
            self._drop_channel()
            self._committed.close()

    def _start(self) -> None:
        """Load the latest snapshot, and reconcile the log with it after a crash."""
        self._last_committed = self._committed.read() or self._last_committed
        self._load_snapshot()
        log, latest = self._log, self._snapshots.latest()
        if latest is not None and latest.end_offset > log.log_end_offset:
            log.truncate_fully_and_start_at(latest.end_offset)
        elif log.log_start_offset > (0 if latest is None else latest.end_offset):
            self._logger.warning("metadata log lacks the snapshot before it, fetching all again", log=repr(log))
            log.truncate_fully_and_start_at(Offset(0))

    def _load_snapshot(self) -> None:
        """Load the latest valid snapshot. Invalid ones are renamed: the leader has newer snapshots, or the records."""
        while (latest := self._snapshots.latest()) is not None:
            try:
                self._loader.load_snapshot()
                return
            except ValueError as error:  # including damaged batches and contradictory records
                self._logger.warning("invalid metadata snapshot renamed", reason=str(error))
                self._snapshots.set_aside(latest)

    async def _apply(self, outcome: Outcome | None) -> None:
        """Act on the result of a fetch; None after a snapshot was fetched."""
        match outcome:
            case None:
                self._failures = self._changes = 0
            case Records(data, high_watermark):
                self._changes = 0
                await self._append(data, high_watermark)
            case Diverged(epoch=epoch, end_offset=end_offset):
                self._changes += 1
                if not self._truncate(epoch, end_offset):
                    await self._try_next_address("its log lacks committed records")
                elif self._changes > MAX_UNPAUSED_CHANGES:
                    await self._pause()
            case NewLeader(quorum, endpoint):
                self._changes += 1
                self._follow(quorum, endpoint)
                if quorum.leader is None:
                    await self._try_next_address("the leader is not known there")
                elif self._changes > MAX_UNPAUSED_CHANGES:
                    await self._pause()  # each answer names another leader
            case StaleAnswer(epoch):
                if self._failures >= MAX_STALE_ANSWERS:
                    self._report_ahead(epoch, None)
                await self._try_next_address(f"epoch {epoch} is behind ours")
            case FetchRefused(code):
                await self._try_next_address(error_name(code))
            case NeedsSnapshot():
                raise AssertionError("run has replaced this outcome by that of the snapshot's fetch")

    async def _fetch(self, channel: Channel) -> Outcome:
        """Fetch once from the end of our log. Raises ChannelError, KafkaError."""
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
        self._requested_at = self._runtime.clock.monotonic()

        def decode(body: memoryview) -> Outcome:
            outcome = decide(quorum, decode_fetch_response(version, body))
            if isinstance(outcome, Records):
                # The records are in the receive buffer, which is reused: copy them.
                return Records(memoryview(bytes(outcome.data)), outcome.high_watermark)
            return outcome

        return await channel.request_raw(
            ApiKey.FETCH, version, [encode_fetch_request(version, request)], decode, timeout=options.fetch_timeout
        )

    async def _fetch_snapshot(self, channel: Channel, needed: NeedsSnapshot) -> Outcome | None:
        """Fetch a snapshot, then reset the log and the image to it. Returns None if that is done or must be retried."""
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
        except OSError as error:  # for example, a full disk: the node continues with the present image
            self._logger.error("metadata snapshot cannot be written", reason=str(error), again_in_seconds=DISK_PAUSE)
            await self._runtime.clock.sleep(DISK_PAUSE)
            return None
        if outcome is None:
            self._log.truncate_fully_and_start_at(needed.snapshot.end_offset)
            self._snapshots.delete_before(needed.snapshot)
            self._loader.load_snapshot()
        return outcome

    async def _append(self, data: memoryview, high_watermark: Offset) -> None:
        """Append fetched records, and replay those below the leader's high watermark. Raises KafkaError
        KAFKA_STORAGE_ERROR."""
        if len(data):
            end = self._log.log_end_offset
            try:
                self._log.append_as_follower(data, leader_epoch=self.quorum.epoch)
            except KafkaError as error:
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    raise
                await self._try_next_address(f"its records cannot follow ours: {error}")
                return
            self.meters.fetched.count += self._log.log_end_offset - end
        self._failures = 0
        if self.ahead:
            self.ahead = False
            self._logger.info("the leader has all committed metadata again", epoch=self.quorum.epoch)
        committed = Offset(min(high_watermark, self._log.log_end_offset))
        if committed > self._loader.high_watermark:
            self._log.set_high_watermark(committed)
            self._committed.write(committed)
            self._loader.set_high_watermark(committed)
            pause = partial(self._runtime.clock.sleep, 0)
            while await run_in_steps(self._loader.replay_some(), pause):
                await pause()
            await self._keeper.maintain()
        if self._loader.high_watermark >= high_watermark:
            self.current_at = self._requested_at

    def _truncate(self, epoch: LeaderEpoch, end_offset: Offset) -> bool:
        """Truncate our log to the last offset that it has in common with the leader's (KIP-595). Returns False, without
        a truncation, if that is below a committed offset."""
        log = self._log
        ours, our_end = log.leader_epoch_end_offset(epoch)
        target = end_offset if our_end is None else min(our_end, end_offset) if ours == epoch else our_end
        target = Offset(min(target, log.log_end_offset))
        if target < max(self._loader.high_watermark, min(self._last_committed, log.log_end_offset), 0):
            self._report_ahead(epoch, target)
            return False
        self._logger.warning("truncating the metadata log", offset=target, log_end=log.log_end_offset, epoch=epoch)
        log.truncate_to(target)
        return True

    def _report_ahead(self, epoch: int, diverges_at: Offset | None) -> None:
        """Log once that the leader has lost committed records. Such a leader is not followed, since applied records
        cannot be undone."""
        if not self.ahead:
            self._logger.error(
                "the controller lacks committed metadata: this node waits. Repair its log from the copy here "
                "(`milena metadata repair`); to give up what it lacks, stop this node and remove the copy",
                copy=self._log.folder,
                diverges_at=diverges_at,
                committed=max(self._loader.high_watermark, self._last_committed),
                epoch=epoch,
                our_epoch=self._last_epoch(),
            )
        self.ahead = True

    def _follow(self, quorum: Quorum, endpoint: tuple[str, int] | None) -> None:
        """Fetch from a new leader; its endpoint is remembered if the answer named it."""
        self.quorum = quorum
        if quorum.leader is not None and endpoint is not None:
            self._endpoints[quorum.leader] = endpoint
        address = self.leader_address
        if self._channel is not None and address is not None and (self._channel.host, self._channel.port) != address:
            self._drop_channel()
        log = self._logger.debug if self._failures else self._logger.info
        log("leader of the metadata log", leader=quorum.leader, epoch=quorum.epoch)

    async def _try_next_address(self, reason: str) -> None:
        """After a failure: forget the leader, and continue with the next address after a pause."""
        if not self._failures:
            self._logger.debug("metadata fetch failed", reason=reason)
        leader = self.leader_address
        self._drop_channel_unless_only()
        if leader is not None:
            self.quorum = Quorum(None, self.quorum.epoch)
        await self._pause()

    async def _pause(self) -> None:
        """Pause; the duration grows with the number of consecutive failures."""
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
                traffic=self.meters.traffic,
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
        """Return the epoch of the last record in the log, or of the snapshot if the log is empty; 0 if there is
        neither."""
        return self._log_epoch(self._log, self._snapshots)

    @staticmethod
    def _log_epoch(log: UnifiedLog, snapshots: SnapshotStore) -> LeaderEpoch:
        latest = log.epochs.latest_entry
        snapshot = snapshots.latest()
        if latest is not None:
            return latest.epoch
        return snapshot.epoch if snapshot is not None else LeaderEpoch(0)
