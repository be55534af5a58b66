"""Moves replicas from one log directory to another while they are in use (KIP-113, AlterReplicaLogDirs).

One task copies for all moves, a piece of each in turn. It reads the bytes in a worker and appends them on the loop,
then pauses for as long as the append took. The copy is synced before it replaces the log. Copying the last bytes,
replacing the log, and telling the controller are one step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from milena.broker.follower.truncation import cut_for
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

PIECE: Final = 256 << 10
LONGEST_WAIT: Final = 1.0
"""Seconds after which a throttled move checks its quota again."""
LAST_PIECE: Final = 1 << 20
"""If at most so many bytes are left, they are copied within the step that replaces the log."""


@dataclass(eq=False, slots=True)
class Move:
    """The move of one replica."""

    partition: Partition
    current: UnifiedLog
    future: UnifiedLog
    truncations: int
    """How many truncations of the current log the copy has followed."""
    synced: bool = False

    @property
    def alive(self) -> bool:
        """Whether neither log has been replaced, deleted, or taken offline."""
        logs = self.current, self.future
        return self.partition.log is self.current and not any(log.retired or log.context.offline for log in logs)

    def align(self) -> None:
        """Remove from the copy what the current log has lost, at its end or its start. Raises KafkaError."""
        current, future = self.current, self.future
        while self.truncations != current.truncations or future.log_end_offset > current.log_end_offset:
            newest = future.epochs.latest
            if newest is None:
                break
            epoch, end = current.leader_epoch_end_offset(newest)
            cut = cut_for(
                future.epochs,
                log_end=future.log_end_offset,
                fallback=future.local_log_start_offset,
                leader_epoch=epoch,
                end_offset=end,
            )
            future.truncate_to(cut.offset)
            if cut.agreed:
                break
        self.truncations = current.truncations
        first = self._first_batch()
        if future.log_end_offset < first or future.log_end_offset > current.log_end_offset:
            self._begin_at(first)

    def _begin_at(self, first: Offset) -> None:
        """Start the copy anew at ``first``. If the log is tiered, the copy takes over what is known of its segments in
        the tier, and the producer state: its own segments will be copied to the tier, too."""
        current = self.current
        if current.remote_enabled and current.log_start_offset < first == current.segments[0].base_offset:
            tiering.start_like(self.future, current, first)
        else:
            self.future.truncate_fully_and_start_at(first)

    @property
    def next(self) -> Offset:
        """The next offset to copy. (The batch at the log's start may begin before it.)"""
        return max(self.future.log_end_offset, self.current.local_log_start_offset)

    def left(self) -> int:
        """Bytes left to copy if they are in the last segment; more than ``LAST_PIECE`` if they are not."""
        current = self.current
        found = current.read(self.next, LAST_PIECE + 1, upper=current.log_end_offset, min_one=True)
        if not found.length:
            return 0  # also where compaction has removed the last records
        return found.length if found.segment_base == current.segments.active.base_offset else LAST_PIECE + 1

    def _first_batch(self) -> Offset:
        """The offset at which the copy must begin so that it contains the whole batch at the log's start."""
        current = self.current
        start = current.local_log_start_offset
        if start == current.log_end_offset:
            return start
        found = current.read(start, 1, upper=current.log_end_offset, min_one=True)
        return min(start, BatchView(found.read()).base_offset) if found.length else start


class LogMover:
    """All moves of a broker."""

    def __init__(self, runtime: Runtime, logs: LogManager, moved: Callable[[Partition], None], quota: Quota) -> None:
        """``moved`` is called with each partition whose log has been replaced."""
        self._quota = quota
        self._runtime = runtime
        self._logs = logs
        self._moved = moved
        self._moves: dict[Partition, Move] = {}
        self._work = asyncio.Event()
        self._log = get_logger("log-mover", node=logs.node_id)

    def start(self, tasks: Tasks) -> None:
        tasks.keep(self._run, name="log mover")

    def move(self, partition: Partition, target: LogDir) -> None:
        """Begin or continue a move; a move to another directory is cancelled. Does nothing else if the log is already
        there.

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
        self._begin(partition, current, future)

    def resume(self, partition: Partition) -> None:
        """Continue the copy that was begun before the broker was restarted."""
        future = self._logs.futures.find(partition.topic, partition.index)
        if future is None or partition.log is None or partition in self._moves:
            return
        if future.topic_id != partition.topic_id:
            self._logs.futures.drop(future)
        else:
            self._begin(partition, partition.log, future)

    def cancel(self, partition: Partition) -> None:
        """Delete the copy: the replica stays where it is, or is removed."""
        self._moves.pop(partition, None)
        future = self._logs.futures.find(partition.topic, partition.index)
        if future is not None:
            self._logs.futures.drop(future)

    def forget(self, partition: Partition) -> None:
        """The log's directory has failed. The copy stays as it is."""
        self._moves.pop(partition, None)

    def _begin(self, partition: Partition, current: UnifiedLog, future: UnifiedLog) -> None:
        known = self._moves.get(partition)
        if known is None or known.future is not future or known.current is not current:
            # It is unknown which truncations the copy has missed, so it is compared with the log first.
            self._moves[partition] = Move(partition, current, future, truncations=-1)
            self._work.set()

    # -- copying

    async def _run(self) -> None:
        while True:
            await self._work.wait()
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
                self._work.clear()

    async def _step(self, move: Move) -> bool:
        """Copy a piece, or finish. Returns True if the move is over. Raises KafkaError."""
        if not self._goes_on(move):
            return True
        move.align()
        if self._quota.exceeded:
            await self._runtime.clock.sleep(self._quota.wait(LONGEST_WAIT))
        elif move.left() > LAST_PIECE:
            await self._copy(move)
        elif not move.synced:
            await self._sync(move)
        else:
            self._finish(move)
            return True
        return False

    def _goes_on(self, move: Move) -> bool:
        return move.alive and self._moves.get(move.partition) is move

    async def _copy(self, move: Move) -> None:
        clock, current, future = self._runtime.clock, move.current, move.future
        offset, truncations = future.log_end_offset, current.truncations
        found = current.read(move.next, PIECE, upper=current.log_end_offset, min_one=True)
        try:
            data = await self._runtime.disk.offload(found.read)
        except OSError as error:
            current.context.failed(error)
            return
        if not self._goes_on(move) or current.truncations != truncations or future.log_end_offset != offset:
            return
        began = clock.monotonic()
        future.append_as_follower(memoryview(bytearray(data)))
        if self._quota.limit is not None:
            self._quota.record(len(data))
        move.synced = False
        await clock.sleep(clock.monotonic() - began)

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
        """Copy the last bytes and replace the log."""
        partition, current, future = move.partition, move.current, move.future
        while future.log_end_offset < current.log_end_offset:
            data = current.read_bytes(move.next, LAST_PIECE, upper=current.log_end_offset, min_one=True)
            if data:
                future.append_as_follower(memoryview(bytearray(data)))
            else:
                future.end_at(current.log_end_offset)
        self._logs.futures.promote(current, future)
        partition.log = future
        self._log.info("replica moved", topic=partition.topic, partition=partition.index, folder=future.folder)
        self._moved(partition)
