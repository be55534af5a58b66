"""The log ``__cluster_metadata-0`` of the active controller: appends, group commit, and the high watermark.

A write is appended and replayed at once. One task syncs everything appended since its last sync; then the high
watermark advances and the waiting writes complete. Records that are not synced are neither acknowledged nor returned
to observers. If an append or a sync fails, the process exits, because the image would contain records that the log has
lost.

Each start of the controller begins a new epoch with a LeaderChange record. The controller is the only voter; with more
voters, the high watermark would also depend on their fetches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from milena.config.node_config import NodeConfig
from milena.controller.log.batches import encode_batches
from milena.controller.log.log_damage import MetadataLost, prepare
from milena.controller.log.quorum_state import (
    FILE_NAME,
    CorruptQuorumState,
    QuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from milena.controller.rules.record_checks import check_records
from milena.controller.state.state import ControllerState
from milena.node.metadata.committed_offset import CommittedOffsetFile
from milena.node.metadata.image import MetadataImage
from milena.node.metadata.metadata_folder import metadata_folder, open_metadata_log
from milena.node.metadata.raft_meters import LEADER, RaftMeters, RaftView
from milena.node.metadata.snapshots import SnapshotStore, batch_records, load_latest
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.metadata_records import LATEST_METADATA_VERSION, MetadataRecord
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.records.control_records import LeaderChange, Voter, control_batch
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.containment import cause_of
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks
from milena.storage.log.unified_log import UnifiedLog

READ_BYTES: Final = 1 << 20


class EncodedRecords(NamedTuple):
    """Record batches whose base offsets are not set yet, and their timestamp (ms). For one ``write``."""

    data: bytearray
    timestamp_ms: int


class MetadataLog:
    """Owns the log and its snapshots. Call ``open``, then ``lead``."""

    def __init__(self, runtime: Runtime, config: NodeConfig, state: ControllerState, voters: Sequence[NodeId]) -> None:
        self.folder = metadata_folder(config)
        self.epoch = LeaderEpoch(0)
        self.snapshots = SnapshotStore(runtime.disk, self.folder)
        self.last_append = runtime.clock.monotonic()
        self.bytes_replayed = 0
        """Bytes of records since the last snapshot."""
        self._runtime = runtime
        self._config = config
        self._state = state
        self._voters = tuple(voters)
        self._log: UnifiedLog | None = None
        self._committed_offset = CommittedOffsetFile(runtime.disk, self.folder)
        self._waiting: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self._appended: deque[tuple[Offset, float]] = deque()
        """Last offset and time of each append that is not committed."""
        self.meters = RaftMeters(runtime.clock)
        self._dirty = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def log(self) -> UnifiedLog:
        assert self._log is not None, "the metadata log is not open"
        return self._log

    @property
    def image(self) -> MetadataImage:
        """The image at the log end; all of it is committed if ``idle``."""
        return self._state.image

    @property
    def in_transaction(self) -> bool:
        return self._state.in_transaction

    def view(self) -> RaftView:
        """Return the state of this controller in the quorum: the leader that its own vote has elected."""
        node, log, epoch = self._state.config.node_id, self.log, self.epoch
        return RaftView(LEADER, node, epoch, node, log.high_watermark, log.log_end_offset, log.epochs.latest or 0)

    def snapshot_taken(self) -> None:
        self.bytes_replayed = 0

    @property
    def high_watermark(self) -> Offset:
        """The first offset that is not committed."""
        return self.log.high_watermark

    def open(self) -> None:
        """Load the snapshot and the log into the state. Blocking.

        Raises OSError, MetadataLost, CorruptMetadataSnapshot, CorruptBatch, ReplayError.
        """
        self.snapshots.open()
        image = self._prepare()
        start = Offset(0) if image is None else Offset(image.offset + 1)
        self._log = open_metadata_log(self._runtime, self._config, recovery_point=start)
        if start > self._log.log_end_offset:
            self._log.truncate_fully_and_start_at(start)
        if image is not None:
            self._state.load(image)
        self._replay()
        self.epoch = max(self._epoch_on_disk(), self._state.image.epoch)

    def _prepare(self) -> MetadataImage | None:
        """Prepare the log to be opened, and return the image of the latest valid snapshot. A later, damaged snapshot is
        renamed if the log has the records that it covers. Raises MetadataLost, OSError."""
        image, damaged = load_latest(self.snapshots)
        start = Offset(0) if image is None else Offset(image.offset + 1)
        known = self._committed_offset.read() or Offset(0)
        committed = max(known, *(snapshot.end_offset for snapshot in damaged), start)
        try:
            prepare(self._runtime.disk, self.folder, start, committed)
        except MetadataLost as lost:
            raise MetadataLost("; ".join((*damaged.values(), str(lost)))) from None
        for snapshot, reason in damaged.items():
            get_logger("metadata").warning("damaged metadata snapshot renamed", reason=reason)
            self.snapshots.set_aside(snapshot)
        return image

    def _replay(self) -> None:
        state, log = self._state, self.log
        while state.next_offset < log.log_end_offset:
            data = log.read(state.next_offset, READ_BYTES, upper=log.log_end_offset, min_one=True).read()
            for batch in iter_batches(data):
                if batch.base_offset >= state.next_offset:
                    self._replay_batch(batch)
                    self.bytes_replayed += batch.size_in_bytes

    def _replay_batch(self, batch: BatchView) -> None:
        epoch, timestamp = batch.leader_epoch, batch.max_timestamp
        if batch.is_control:
            self._state.advance(last_offset=batch.last_offset, epoch=epoch, timestamp_ms=timestamp)
            return
        records = [record for record in batch_records(batch) if isinstance(record, MetadataRecord)]
        self._state.replay(records, base_offset=batch.base_offset, epoch=epoch, timestamp_ms=timestamp)

    def _epoch_on_disk(self) -> LeaderEpoch:
        path = f"{self.folder}/{FILE_NAME}"
        try:
            return decode_quorum_state(self._runtime.disk.read(path)).epoch
        except FileNotFoundError:
            return LeaderEpoch(0)
        except CorruptQuorumState as error:
            raise CorruptQuorumState(f"{path}: {error}") from None

    def lead(self, tasks: Tasks) -> None:
        """Begin the next epoch. Blocking, but short. Raises OSError, KafkaError."""
        began = self._runtime.clock.monotonic()
        self.epoch = LeaderEpoch(self.epoch + 1)
        node = self._state.config.node_id
        quorum = encode_quorum_state(QuorumState(self.epoch, NodeId(node), self._voters))
        self._runtime.disk.write_atomic(f"{self.folder}/{FILE_NAME}", quorum)
        self.meters.elections.record((self._runtime.clock.monotonic() - began) * 1000)
        voters = tuple(Voter(voter_id=voter) for voter in self._voters)
        change = LeaderChange(leader_id=node, voters=voters, granting_voters=(Voter(voter_id=node),))
        now = self._runtime.clock.time_ms()
        last = self._append(bytearray(control_batch([change], timestamp=now)))
        self._state.advance(last_offset=last, epoch=self.epoch, timestamp_ms=now)
        self._dirty.set()
        tasks.spawn(self._sync_forever(), name="metadata log sync")

    def encode(self, records: Sequence[MetadataRecord], *, atomic: bool = True) -> EncodedRecords:
        """Encode records for ``write``, which may follow later if the metadata have not changed. Raises
        KafkaError(RECORD_LIST_TOO_LARGE)."""
        now = self._runtime.clock.time_ms()
        level = self._state.image.metadata_version or LATEST_METADATA_VERSION
        return EncodedRecords(encode_batches(records, metadata_version=level, timestamp_ms=now, atomic=atomic), now)

    def write(
        self, records: Sequence[MetadataRecord], *, atomic: bool = True, encoded: EncodedRecords | None = None
    ) -> asyncio.Future[None]:
        """Append and replay ``records`` now. The future completes when they and all earlier records are committed.
        ``encoded``: the result of ``encode``.

        Without records it completes when the current state is committed. Raises KafkaError(RECORD_LIST_TOO_LARGE)
        before anything is changed, and BrokenInvariant for records that contradict the image.
        """
        if records:
            data, now = self.encode(records, atomic=atomic) if encoded is None else encoded
            base = self._state.next_offset
            check_records(self._state.image, records, base)
            try:
                self._check_place(base)
                last = self._append(data)
                self._state.replay(records, base_offset=base, epoch=self.epoch, timestamp_ms=now)
                if last + 1 != self._state.next_offset:
                    raise BrokenInvariant(f"{len(records)} records from {base} on end at {last}")
            except (KafkaError, ValueError, BrokenInvariant) as error:
                self._runtime.fatal("the metadata log cannot be written", _of_disk(error))
                raise
            self._dirty.set()
        return self._committed(self._state.next_offset)

    def on_commit(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever the high watermark has advanced."""
        self._listeners.append(listener)

    @property
    def idle(self) -> bool:
        """Whether all appended records are committed."""
        return self.high_watermark >= self._state.next_offset

    async def close(self) -> None:
        """Sync and close. Waiting writes do not complete."""
        if self._log is not None:
            await self._sync()
            self._log.close()
            self._log = None
        self._committed_offset.close()

    def _check_place(self, base: Offset) -> None:
        """Check that the image is at the log end and not of a later epoch."""
        end, epoch = self.log.log_end_offset, self._state.image.epoch
        if base != end:
            raise BrokenInvariant(f"the image is at offset {base}, the metadata log ends at {end}")
        if epoch > self.epoch:
            raise BrokenInvariant(f"the image is of epoch {epoch}, this controller leads in {self.epoch}")

    def _append(self, data: bytearray) -> Offset:
        end = self.log.log_end_offset
        info = self.log.append_as_leader(memoryview(data), leader_epoch=self.epoch, origin=Origin.RAFT)
        self.last_append = self._runtime.clock.monotonic()
        self.meters.appended.count += info.last_offset + 1 - end
        self._appended.append((info.last_offset, self.last_append))
        self.bytes_replayed += info.size
        return info.last_offset

    def _committed(self, offset: Offset) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.high_watermark >= offset:
            future.set_result(None)
        else:
            if self._waiting and self._waiting[-1][0] > offset:
                raise BrokenInvariant(f"a write waits for offset {offset} after one for {self._waiting[-1][0]}")
            self._waiting.append((offset, future))
        return future

    async def _sync_forever(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._sync()
            except (OSError, KafkaError) as error:
                self._runtime.fatal("the metadata log cannot be synced", _of_disk(error))
                return

    async def _sync(self) -> None:
        plan = self.log.plan_flush()
        if plan is None:
            self._commit(self.log.log_end_offset)
            return
        await self._runtime.disk.offload(plan.run)
        self.log.flushed(plan)
        self._commit(plan.upto)

    def _commit(self, upto: Offset) -> None:
        if upto <= self.high_watermark:
            return
        self.log.raise_high_watermark(upto)
        self._committed_offset.write(upto)
        now = self._runtime.clock.monotonic()
        while self._appended and self._appended[0][0] < upto:
            self.meters.commits.record((now - self._appended.popleft()[1]) * 1000)
        while self._waiting and self._waiting[0][0] <= upto:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
        for listener in self._listeners:
            listener()


def _of_disk(error: BaseException) -> BaseException:
    """Return the error of the disk that a KAFKA_STORAGE_ERROR reports; any other error as it is."""
    if isinstance(error, KafkaError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR:
        return cause_of(error) or error
    return error
