"""Runs the tier's tasks of each replica: Kafka's RemoteLogManager (KIP-405; docs/kafka-semantics.md: Tasks of the
tier).

A leader of a tiered partition has a task for copying, one for expiration and, with compaction, one for cleaning; a
follower has one, which updates the highest copied offset. Each task runs immediately (tests may delay that), and again
a fixed time after its last end. Each pool limits how many tasks of its kind run concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from milena.config.tiered_rules import COMPACTION_ENABLE
from milena.node.metrics import Metrics
from milena.protocol.errors import KafkaError
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.tasks import Tasks
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.metadata.metadata_manager import MetadataNotReady
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from milena.tiered.shared.pool import Pool
from milena.tiered.shared.tier import FAILURES, HostedReplica, Tier
from milena.tiered.store.remote_storage import RemoteStorageError, cancellation_errors
from milena.tiered.work.copying import INTERVAL, copy_round, due_segments
from milena.tiered.work.expiration import erase, expire_round
from milena.tiered.work.gauges import TierGauges
from milena.tiered.work.log_updates import follow_round
from milena.tiered.work.roles import ReplicaRole
from milena.tiered.work.tier_cleaner import THREADS, TierCleaner

Round: TypeAlias = Callable[[Tier, ReplicaRole], Awaitable[None]]
NOT_READY_PAUSE: Final = 1.0
"""Seconds between two checks whether the metadata is known."""
INITIAL_DELAY: Final = "internal.remote.log.manager.task.initial.delay.ms"
CLEAN: Final = "clean"
ERASING_ATTEMPTS: Final = 10
READY_TO_ERASE: Final = 120.0
"""Seconds within which the metadata of a partition whose segments are all to be deleted must become known."""


class Job:
    """One kind of round for one role; at most one runs at a time."""

    __slots__ = ("name", "pool", "running", "work")

    def __init__(self, name: str, pool: Pool, work: Round) -> None:
        self.name = name
        self.pool = pool
        self.work = work
        self.running = asyncio.Lock()


class RemoteLogManager:
    """The roles of one broker's replicas in the tier. All methods must be called on the event loop."""

    def __init__(self, tier: Tier, metrics: Metrics) -> None:
        self.tier = tier
        self.copying = self._pool("remote.log.manager.copier.thread.pool.size")
        self.expiring = self._pool("remote.log.manager.expiration.thread.pool.size")
        self.following = self._pool("remote.log.manager.follower.thread.pool.size")
        self.cleaning = self._pool(THREADS)
        self._cleaner = TierCleaner(tier)
        self._gauges = TierGauges(metrics, (self.copying, self.expiring, self.following))
        self._tasks: Tasks = tier.runtime.new_tasks("remote log manager")
        self._roles: dict[TopicIdPartition, ReplicaRole] = {}
        self._jobs: dict[ReplicaRole, Sequence[Job]] = {}
        self._erasing: dict[TopicIdPartition, bool] = {}
        """The partitions that are being deleted from the tier, and whether the topic was deleted."""
        self._stopped = False
        self._was_used = False
        """Whether any replica has had a role since the start or the last reset."""

    def _pool(self, key: str) -> Pool:
        return Pool(lambda: self.tier.config().get_int(key))

    # -- life

    async def start(self) -> None:
        """Prepare the store and start reading the metadata. If the store cannot be reached, the broker starts
        nevertheless, and the store is tried again."""
        await self._prepare_store()
        await self.tier.indexes.start()
        self.tier.metadata.start()

    async def _prepare_store(self) -> None:
        reason = await self._unusable()
        if reason is not None:
            self.tier.events.error("remote storage cannot be used", reason=reason)
            self._tasks.spawn(self._start_again(), name="start of the remote storage")

    async def _unusable(self) -> str | None:
        """Return the reason why the store cannot be used; None if it can."""
        try:
            await self.tier.storage.start()
        except RemoteStorageError as error:
            return str(error)
        return None

    async def _start_again(self) -> None:
        reason: str | None = ""
        while reason is not None:
            await self.tier.runtime.clock.sleep(self._interval)
            reason = await self._unusable()
        self.tier.events.info("remote storage can be used")

    async def stop(self) -> None:
        """Cancel the tasks, as a crash would; roles are no longer accepted. Idempotent."""
        self._stopped = True
        for role in self:
            role.end()
        await self._tasks.stop()
        await self.tier.metadata.stop()
        await self.tier.indexes.close()
        await self.tier.storage.close()

    async def reset(self) -> list[UUID] | None:
        """Forget everything, after all topics including the metadata topic were deleted: cancel all tasks, and start
        again as in a new process. Return the ids of topics whose segments were being deleted from the tier; None if no
        replica here was in the tier."""
        if not self._was_used:
            return None
        erasing = list(self._erasing)
        replicas = self._end_all()
        former, self._tasks = self._tasks, self.tier.runtime.new_tasks("remote log manager")
        self._erasing.clear()
        self._was_used = False
        await former.stop()
        for partition in erasing:
            self.tier.unreliable.forget(partition)
            self._forget(partition)
        if self._stopped:
            return None
        await self._prepare_store()
        await self.tier.metadata.restart()
        for replica in (*replicas, *self._end_all()):  # of topics that were created since, also during this call
            self.take_up(replica)
        return list(dict.fromkeys(partition.topic_id for partition in erasing))

    def _end_all(self) -> list[HostedReplica]:
        """End all roles, and return their replicas."""
        replicas = [role.replica for role in self]
        for role in self:
            self._end(role)
        return replicas

    def reconfigure(self) -> None:
        """Apply the broker's dynamic configuration."""
        tier = self.tier
        tier.copy_quota.limit = tier.config().get_int("remote.log.manager.copy.max.bytes.per.second")
        tier.fetch_quota.limit = tier.config().get_int("remote.log.manager.fetch.max.bytes.per.second")
        tier.indexes.resize(tier.config().get_int("remote.log.index.file.cache.total.size.bytes"))

    @property
    def knows_of_no_copy(self) -> bool:
        """Whether the tier may be a new one: the metadata topic was empty when it was checked, and the metadata of all
        tiered partitions of this broker is known and lists no copied segment."""
        metadata, started = self.tier.metadata, RemoteLogSegmentState.COPY_SEGMENT_STARTED
        return self.tier.may_begin and all(
            metadata.is_ready(role.partition)
            and all(segment.state is started for segment in metadata.cache(role.partition).segments())
            for role in self
        )

    # -- roles

    def __iter__(self) -> Iterator[ReplicaRole]:
        return iter(list(self._roles.values()))

    def role_of(self, replica: HostedReplica) -> ReplicaRole | None:
        return self._roles.get(TopicIdPartition(replica.topic_id, replica.topic, replica.index))

    def take_up(self, replica: HostedReplica) -> None:
        """Start or stop the tasks of ``replica`` after its role or configuration may have changed. Idempotent."""
        if self._stopped:
            return
        role, log = self.role_of(replica), replica.log
        if log is not None and not log.remote_enabled:
            if role is not None:
                self._switched_off(role, log)
            elif replica.is_leader:  # the former leader may have crashed before it raised the log start
                self._begin_with_local(replica, log)
            return
        if role is not None and role.replica is replica and role.log is not None:
            return
        if role is not None:
            self._end(role)
        if log is not None and log.remote_enabled:
            self._begin(ReplicaRole(replica, self.tier.runtime.clock))
        elif role is not None:
            self._forget(role.partition)

    def drop(self, replica: HostedReplica, *, erase_remote: bool = False, others_first: bool = False) -> None:
        """Stop the tasks of a replica that is removed from this broker. ``erase_remote``: its topic was deleted, so
        delete its segments in the tier, too. ``others_first``: wait before that for as long as the leader may need to
        delete them."""
        role = self.role_of(replica)
        if role is not None and not self._stopped:
            self._leave(role, erase_remote=erase_remote, others_first=others_first)
        partition = TopicIdPartition(replica.topic_id, replica.topic, replica.index)
        if erase_remote and partition in self._erasing:
            self._erasing[partition] = True
        elif not erase_remote:
            self.tier.unreliable.forget(partition)

    def _begin(self, role: ReplicaRole) -> None:
        self._was_used = True
        self._roles[role.partition] = role
        assigned = [role.partition]
        self.tier.metadata.assign(assigned if role.leads else (), () if role.leads else assigned)
        self._gauges.show(role)
        self.tier.meters.of(role.replica.topic)  # alerts need the meters before the first error
        jobs = self._jobs[role] = self._jobs_of(role)
        for job in jobs:
            role.task_began()
            self._tasks.spawn(self._repeat(role, job), name=f"{job.name} {role.replica.topic}-{role.replica.index}")

    def _jobs_of(self, role: ReplicaRole) -> Sequence[Job]:
        if role.leads:
            jobs = (Job("copy", self.copying, copy_round), Job("expire", self.expiring, expire_round))
            if self.tier.config().get_bool(COMPACTION_ENABLE):
                return (*jobs, Job(CLEAN, self.cleaning, self._cleaner.round))
            return jobs
        return (Job("follow", self.following, follow_round),)

    def _end(self, role: ReplicaRole) -> None:
        role.end()
        self._gauges.hide(role)
        self._cleaner.forget(role)
        del self._roles[role.partition]
        del self._jobs[role]

    def _leave(self, role: ReplicaRole, *, erase_remote: bool, others_first: bool = False) -> None:
        self._end(role)
        if erase_remote:
            self._erasing[role.partition] = False
            pause = ERASING_ATTEMPTS * self._interval if others_first else 0.0
            self._tasks.spawn(self._erase(role, pause), name=f"erase {role.replica.topic}-{role.replica.index}")
        else:
            self._forget(role.partition)

    def _forget(self, partition: TopicIdPartition) -> None:
        """Release the metadata and meters of a partition that has no tasks here any more."""
        self.tier.metadata.unassign([partition])
        if not any(other.topic == partition.topic for other in self._roles):
            self.tier.meters.forget(partition.topic)

    def _switched_off(self, role: ReplicaRole, log: UnifiedLog) -> None:
        """Handle a topic that is no longer tiered (KIP-950): the log now starts with its first local record, and the
        leader deletes the segments in the tier, if ``remote.log.delete.on.disable`` is set."""
        leads = role.replica.is_leader
        metadata = self.tier.metadata
        if metadata.is_ready(role.partition):
            self.tier.unreliable.add(
                role.partition, [segment.id for segment in metadata.cache(role.partition).segments()]
            )
        log.set_highest_offset_in_remote_storage(Offset(-1))
        if leads:
            self._begin_with_local(role.replica, log)
            if self.role_of(role.replica) is not role:
                return  # the log directory has failed, and the role has ended
        self._leave(role, erase_remote=leads and log.config.remote_log_delete_on_disable)

    def _begin_with_local(self, replica: HostedReplica, log: UnifiedLog) -> None:
        """Raise the log start to the local log start: the segments in the tier no longer belong to the log."""
        try:
            log.increment_log_start(log.local_log_start_offset)
        except KafkaError as error:  # its directory is offline; the next leader does it
            self.tier.report("remote log: the log start has not moved", replica, error)

    # -- work

    async def ready(self, role: ReplicaRole) -> None:
        """Wait until the metadata of the role's partition is known. Raises MetadataNotReady after a timeout."""
        partition = role.partition
        if not await self.tier.metadata.wait_ready(partition, self._interval):
            raise MetadataNotReady(
                f"the remote log metadata of {partition.topic}-{partition.partition} has not been read yet"
            )

    async def run_now(self, replica: HostedReplica) -> None:
        """Run one round of each job of a replica now. Raises the errors of the rounds."""
        role = self.role_of(replica)
        if role is None:
            return
        await self._prepare(role)
        for job in self._jobs.get(role, ()):
            async with job.running:
                await job.work(self.tier, role)

    async def run_job_now(self, role: ReplicaRole, name: str) -> bool:
        """Run one round of a leader's job now: ``copy``, ``expire``, or ``clean`` at any dirty ratio. Returns whether
        it has the job. Raises the errors of the round."""
        await self._prepare(role)
        for job in self._jobs.get(role, ()):
            if job.name == name:
                async with job.running:
                    await (self._cleaner.clean_now(role) if name == CLEAN else job.work(self.tier, role))
                return True
        return False

    async def _prepare(self, role: ReplicaRole) -> None:
        """Wait for the metadata, and end the pauses after failed copies."""
        await self.ready(role)
        self.tier.copies.forget()
        role.attempts.forget()

    def unfinished(self) -> Iterator[str]:
        """Yield a sentence for each task that runs, waits for its turn, or has segments to copy."""
        now = self.tier.runtime.clock.time_ms()
        for role, jobs in list(self._jobs.items()):
            name = f"{role.partition.topic}-{role.partition.partition}"
            yield from (f"{name}: {job.name} in the tier is running" for job in jobs if job.running.locked())
            log = role.log
            if not self.tier.metadata.is_ready(role.partition):
                yield f"{name}: the remote log metadata has not been read yet"
            elif role.leads and role.may_copy and log is not None and log.remote_copy_enabled:
                count = len(due_segments(log, now))
                if count:
                    yield f"{name}: segments to copy: {count}"
        for partition in self._erasing:
            yield f"{partition.topic}-{partition.partition}: segments are being deleted from the tier"

    @property
    def _interval(self) -> float:
        return float(self.tier.config().get_int(INTERVAL)) / 1000

    async def _repeat(self, role: ReplicaRole, job: Job) -> None:
        try:
            if delay := self.tier.config().get_int(INITIAL_DELAY):
                await role.pause(delay / 1000)
            while not role.ended:
                if await self.tier.metadata.wait_ready(role.partition, self._interval):
                    async with job.pool, job.running:
                        await self._once(role, job)
                    await role.pause(self._interval)
                else:
                    await role.pause(NOT_READY_PAUSE)
        finally:
            role.task_ended()

    async def _once(self, role: ReplicaRole, job: Job) -> None:
        try:
            with cancellation_errors():
                await job.work(self.tier, role)
        except FAILURES as error:
            self.tier.report(f"remote log: {job.name} failed", role.replica, error)

    async def _erase(self, role: ReplicaRole, pause: float) -> None:
        """After ``pause`` seconds, delete the segments of a partition from the tier. If it becomes tiered again before,
        segments in an earlier state than DELETE_SEGMENT_STARTED are kept: brokers may delete their local copies."""
        await role.idle()
        await self.tier.runtime.clock.sleep(pause)
        metadata, partition, replica = self.tier.metadata, role.partition, role.replica

        def still_wanted() -> bool:
            log = replica.log
            return self._erasing.get(partition, False) or (log is not None and not log.remote_enabled)

        def may_delete() -> bool:
            # A deleted topic stays deleted; a disabled tier may be enabled again, under another leader.
            return self._erasing.get(partition, False) or self.tier.in_session()

        def by() -> LeaderEpoch:
            # A deleted topic has no leader: any of its brokers may delete the segments, in the epoch of the last fence.
            is_deleted = self._erasing.get(partition, False)
            return max(role.leader_epoch, metadata.cache(partition).fence_epoch if is_deleted else role.leader_epoch)

        if await metadata.wait_ready(partition, READY_TO_ERASE):
            left: Sequence[RemoteLogSegmentMetadata] = metadata.cache(partition).segments()
        else:
            left = ()
            self.tier.events.error(
                "segments remain in the tier: their metadata was not read",
                topic=partition.topic,
                partition=partition.partition,
            )
        for _ in range(ERASING_ATTEMPTS):
            left = await erase(self.tier, role, left, by, still_wanted, may_delete)
            if not left:
                break
            await self.tier.runtime.clock.sleep(self._interval)
        if left:
            self.tier.events.error(
                "segments remain in the tier", topic=partition.topic, partition=partition.partition, count=len(left)
            )
        if self._erasing.pop(partition, False):
            self.tier.unreliable.forget(partition)
        if partition not in self._roles:
            self._forget(partition)
