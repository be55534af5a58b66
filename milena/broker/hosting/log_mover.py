"""Moves replicas from one log directory to another while they are in use (KIP-113, AlterReplicaLogDirs).

One task copies for all moves, up to ``COPY_BYTES`` of each in turn. It reads in a worker, appends on the event loop,
and then pauses for as long as the append took. The copy (Kafka's future log) is synced before it replaces the log.
Copying the last bytes and replacing the log happen without a yield, so that no record is appended in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from milena.broker.follower.truncation import truncation_for
from milena.broker.replica.partition import Partition
from milena.broker.replica.replication_quotas import Quota
from milena.protocol.errors import KafkaError
from milena.protocol.records.batch import BatchView
from milena.protocol.types import Offset
from milena.runtime.context import Runtime
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks
from milena.storage.log import tiering
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.log_dir import LogDir
from milena.storage.manager.log_manager import LogManager

COPY_BYTES: Final = 256 << 10
"""Bytes per read."""
MAX_WAIT: Final = 1.0
"""Seconds after which a throttled move checks its quota again."""
LAST_BYTES: Final = 1 << 20
"""The most remaining bytes that are copied directly before the log is replaced."""


@dataclass(eq=False, slots=True)
class Move:
    """The move of one replica."""

    partition: Partition
    current: UnifiedLog
    future: UnifiedLog
    truncations: int
    """The number of truncations of the current log that have been applied to the copy; -1 if unknown."""
    synced: bool = False

    @property
    def is_valid(self) -> bool:
        """Whether neither log has been replaced, deleted, or taken offline."""
        logs = self.current, self.future
        return self.partition.log is self.current and not any(log.retired or log.context.offline for log in logs)

    def align(self) -> None:
        """Remove from the copy what is no longer in the current log, at its end or its start. Raises KafkaError."""
        current, future = self.current, self.future
        while self.truncations != current.truncations or future.log_end_offset > current.log_end_offset:
            latest = future.epochs.latest
            if latest is None:
                break
            epoch, end = current.leader_epoch_end_offset(latest)
            truncation = truncation_for(
                future.epochs,
                log_end=future.log_end_offset,
                fallback=future.local_log_start_offset,
                leader_epoch=epoch,
                end_offset=end,
            )
            future.truncate_to(truncation.offset)
            if truncation.agreed:
                break
        self.truncations = current.truncations
        first = self._first_batch()
        if future.log_end_offset < first or future.log_end_offset > current.log_end_offset:
            self._restart_at(first)

    def _restart_at(self, first: Offset) -> None:
        """Remove the copied records and start the copy at ``first``. If the log starts in the tier, the copy takes over
        its leader epochs, producer state and offsets in the tier."""
        current = self.current
        if current.remote_enabled and current.log_start_offset < first == current.segments[0].base_offset:
            tiering.start_like(self.future, current, first)
        else:
            self.future.truncate_fully_and_start_at(first)

    @property
    def next(self) -> Offset:
        """The next offset to copy. (The batch that contains the local log start may begin before it.)"""
        return max(self.future.log_end_offset, self.current.local_log_start_offset)

    def remaining(self) -> int:
        """The bytes that remain to be copied, or some number above ``LAST_BYTES`` if they are more or not all in the
        active segment."""
        current = self.current
        data_slice = current.read(self.next, LAST_BYTES + 1, upper=current.log_end_offset, min_one=True)
        if not data_slice.length:
            return 0  # also if compaction has removed the last records
        return data_slice.length if data_slice.segment_base == current.segments.active.base_offset else LAST_BYTES + 1

    def _first_batch(self) -> Offset:
        """The offset at which the copy must start: the base offset of the batch that contains the local log start."""
        current = self.current
        start = current.local_log_start_offset
        if start == current.log_end_offset:
            return start
        data_slice = current.read(start, 1, upper=current.log_end_offset, min_one=True)
        return min(start, BatchView(data_slice.read()).base_offset) if data_slice.length else start


class LogMover:
    """All moves of a broker."""

    def __init__(self, runtime: Runtime, logs: LogManager, moved: Callable[[Partition], None], quota: Quota) -> None:
        """``moved`` is called with each partition whose log has been replaced."""
        self._quota = quota
        self._runtime = runtime
        self._logs = logs
        self._moved = moved
        self._moves: dict[Partition, Move] = {}
        self._has_moves = asyncio.Event()
        self._log = get_logger("log-mover", node=logs.node_id)

    def start(self, tasks: Tasks) -> None:
        tasks.keep(self._run, name="log mover")

    @property
    def moving(self) -> Sequence[Partition]:
        """The replicas that are being moved."""
        return list(self._moves)

    def move(self, partition: Partition, target: LogDir) -> None:
        """Start moving a replica to ``target``, or continue; a move to another directory is cancelled. If the log is in
        ``target`` already, no move is started.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        current = partition.online_log
        future = self._logs.futures.find(partition.topic, partition.index)
        if future is not None and self._logs.dir_of(future) is not target:
            self.cancel(partition)
            future = None
        if self._logs.dir_of(current) is target:
            return
        if future is None:
            future = self._logs.futures.create(current, target)
        self._track(partition, current, future)

    def resume(self, partition: Partition) -> None:
        """Continue a copy that was started before a restart of the broker, if there is one."""
        future = self._logs.futures.find(partition.topic, partition.index)
        if future is None or partition.log is None or partition in self._moves:
            return
        if future.topic_id != partition.topic_id:
            self._logs.futures.drop(future)
        else:
            self._track(partition, partition.log, future)

    def cancel(self, partition: Partition) -> None:
        """End a move and delete the copy."""
        self._moves.pop(partition, None)
        future = self._logs.futures.find(partition.topic, partition.index)
        if future is not None:
            self._logs.futures.drop(future)

    def stop_tracking(self, partition: Partition) -> None:
        """End a move because the log directory has failed. The copy stays on disk."""
        self._moves.pop(partition, None)

    def _track(self, partition: Partition, current: UnifiedLog, future: UnifiedLog) -> None:
        existing = self._moves.get(partition)
        if existing is None or existing.future is not future or existing.current is not current:
            # The copy may lack truncations of the current log, so -1 makes ``align`` compare them.
            self._moves[partition] = Move(partition, current, future, truncations=-1)
            self._has_moves.set()

    # -- copying

    async def _run(self) -> None:
        while True:
            await self._has_moves.wait()
            for partition, move in list(self._moves.items()):
                try:
                    done = await self._step(move)
                except KafkaError as error:
                    done = True
                    self._log.error(
                        "replica not moved", topic=partition.topic, partition=partition.index, reason=error.message
                    )
                if done and self._moves.get(partition) is move:
                    del self._moves[partition]
            if not self._moves:
                self._has_moves.clear()

    async def _step(self, move: Move) -> bool:
        """Copy some bytes, sync, or finish, whichever is next. Returns True if the move has ended. Raises
        KafkaError."""
        if not self._is_active(move):
            return True
        move.align()
        if self._quota.exceeded:
            await self._runtime.clock.sleep(self._quota.wait(MAX_WAIT))
        elif move.remaining() > LAST_BYTES:
            await self._copy(move)
        elif not move.synced:
            await self._sync(move)
        else:
            self._finish(move)
            return True
        return False

    def _is_active(self, move: Move) -> bool:
        return move.is_valid and self._moves.get(move.partition) is move

    async def _copy(self, move: Move) -> None:
        clock, current, future = self._runtime.clock, move.current, move.future
        offset, truncations = future.log_end_offset, current.truncations
        data_slice = current.read(move.next, COPY_BYTES, upper=current.log_end_offset, min_one=True)
        try:
            data = await self._runtime.disk.offload(data_slice.read)
        except OSError as error:
            current.context.failed(error)
            return
        if not self._is_active(move) or current.truncations != truncations or future.log_end_offset != offset:
            return
        started = clock.monotonic()
        future.append_as_follower(memoryview(bytearray(data)))
        if self._quota.limit is not None:
            self._quota.record(len(data))
        move.synced = False
        await clock.sleep(clock.monotonic() - started)

    async def _sync(self, move: Move) -> None:
        future = move.future
        plan = future.plan_flush()
        if plan is not None:
            try:
                await self._runtime.disk.offload(plan.run)
            except OSError as error:
                future.context.failed(error)
                return
            future.flushed(plan)
        move.synced = True

    def _finish(self, move: Move) -> None:
        """Copy the last bytes and replace the log, without a yield."""
        partition, current, future = move.partition, move.current, move.future
        while future.log_end_offset < current.log_end_offset:
            data = current.read_bytes(move.next, LAST_BYTES, upper=current.log_end_offset, min_one=True)
            if data:
                future.append_as_follower(memoryview(bytearray(data)))
            else:
                future.end_at(current.log_end_offset)
        self._logs.futures.promote(current, future)
        partition.log = future
        self._log.info("replica moved", topic=partition.topic, partition=partition.index, folder=future.folder)
        self._moved(partition)
