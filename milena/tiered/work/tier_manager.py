"""Who works for which replica on the tier: Kafka's RemoteLogManager (KIP-405; docs/kafka-semantics.md: Tasks of the
tier).

A leader of a tiered partition has two tasks, copying and expiration, a follower one, that learns what is copied. Each
runs at once (tests may put that off) and then again a fixed time after its last end. So many of a kind run at a time as
its pool has places.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeAlias

from milena.node.metrics import Metrics
from milena.protocol.errors import KafkaError
from milena.protocol.types import Offset
from milena.runtime.tasks import Tasks
from milena.storage.log.partition_log import PartitionLog
from milena.tiered.metadata.metadata_manager import MetadataNotReady
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from milena.tiered.shared.pool import Pool
from milena.tiered.shared.tier import FAILURES, Replica, Tier
from milena.tiered.store.remote_storage import RemoteStorageError, cancelled_calls
from milena.tiered.work.copying import INTERVAL, copy_round
from milena.tiered.work.expiration import erase, expire_round, follow_round
from milena.tiered.work.gauges import TierGauges
from milena.tiered.work.roles import Role

Round: TypeAlias = Callable[[Tier, Role], Awaitable[None]]
NOT_READY_PAUSE: Final = 1.0
"""Seconds after which it is looked again whether the metadata is known."""
INITIAL_DELAY: Final = "internal.remote.log.manager.task.initial.delay.ms"
ERASING_ATTEMPTS: Final = 10
READY_TO_ERASE: Final = 120.0
"""Seconds within which the metadata of a partition whose segments are all to be deleted must be known."""


class Job:
    """One kind of round for one role; never two at a time."""

    __slots__ = ("name", "pool", "running", "work")

    def __init__(self, name: str, pool: Pool, work: Round) -> None:
        self.name = name
        self.pool = pool
        self.work = work
        self.running = asyncio.Lock()


class RemoteLogManager:
    """The roles of one broker's replicas in the tier. All methods are for the loop."""

    def __init__(self, tier: Tier, metrics: Metrics) -> None:
        self.tier = tier
        self.copying = self._pool("remote.log.manager.copier.thread.pool.size")
        self.expiring = self._pool("remote.log.manager.expiration.thread.pool.size")
        self.following = self._pool("remote.log.manager.follower.thread.pool.size")
        self._gauges = TierGauges(metrics, (self.copying, self.expiring, self.following))
        self._tasks: Tasks = tier.runtime.new_tasks("remote log manager")
        self._roles: dict[TopicIdPartition, Role] = {}
        self._jobs: dict[Role, Sequence[Job]] = {}
        self._erasing: dict[TopicIdPartition, bool] = {}
        """What is being deleted from the tier, and whether the topic is gone."""
        self._stopped = False

    def _pool(self, key: str) -> Pool:
        return Pool(lambda: self.tier.get(key))

    # -- life

    async def start(self) -> None:
        """Prepare the store and begin to read the metadata. A store that cannot be reached does not stop the broker: it
        is tried again."""
        reason = await self._unusable()
        if reason is not None:
            self.tier.events.error("remote storage cannot be used", reason=reason)
            self._tasks.spawn(self._start_again(), name="start of the remote storage")
        await self.tier.indexes.start()
        self.tier.metadata.start()

    async def _unusable(self) -> str | None:
        """Why the store cannot be used; None where it can."""
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
        """Idempotent. What is under way is cut short, as by a crash; no role is taken up any more."""
        self._stopped = True
        for role in self:
            role.end()
        await self._tasks.stop()
        await self.tier.metadata.stop()
        await self.tier.indexes.close()
        await self.tier.storage.close()

    def reconfigure(self) -> None:
        """The broker's configuration may have changed."""
        tier = self.tier
        tier.copy_quota.limit = tier.get("remote.log.manager.copy.max.bytes.per.second")
        tier.fetch_quota.limit = tier.get("remote.log.manager.fetch.max.bytes.per.second")
        tier.indexes.resize(tier.get("remote.log.index.file.cache.total.size.bytes"))

    @property
    def knows_of_no_copy(self) -> bool:
        """The metadata of all tiered partitions here is known, and tells of no segment that was copied."""
        metadata, started = self.tier.metadata, RemoteLogSegmentState.COPY_SEGMENT_STARTED
        return all(
            metadata.is_ready(one.partition)
            and all(segment.state is started for segment in metadata.cache(one.partition).segments())
            for one in self
        )

    # -- roles

    def __iter__(self) -> Iterator[Role]:
        return iter(list(self._roles.values()))

    def role_of(self, replica: Replica) -> Role | None:
        return self._roles.get(TopicIdPartition(replica.topic_id, replica.topic, replica.index))

    def take_up(self, replica: Replica) -> None:
        """The role of ``replica`` or its configuration may have changed: do what it asks for now. Idempotent."""
        if self._stopped:
            return
        role, log = self.role_of(replica), replica.log
        if log is not None and not log.remote_enabled:
            if role is not None:
                self._switched_off(role, log)
            elif replica.is_leader:  # its leader may not have lived to do so
                self._begin_with_local(replica, log)
            return
        if role is not None and role.replica is replica and role.log is not None:
            return
        if role is not None:
            self._end(role)
        if log is not None and log.remote_enabled:
            self._begin(Role(replica, self.tier.runtime.clock))
        elif role is not None:
            self._forget(role.partition)

    def drop(self, replica: Replica, *, erase_remote: bool = False) -> None:
        """The replica leaves this broker. ``erase_remote``: and everything of it leaves the tier."""
        role = self.role_of(replica)
        if role is not None and not self._stopped:
            self._leave(role, erase_remote=erase_remote)
        partition = TopicIdPartition(replica.topic_id, replica.topic, replica.index)
        if erase_remote and partition in self._erasing:
            self._erasing[partition] = True
        elif not erase_remote:
            self.tier.given_up.forget(partition)

    def _begin(self, role: Role) -> None:
        self._roles[role.partition] = role
        assigned = [role.partition]
        self.tier.metadata.assign(assigned if role.leads else (), () if role.leads else assigned)
        self._gauges.show(role)
        self.tier.meters.of(role.replica.topic)  # an alert wants to see them before the first error
        jobs = self._jobs[role] = self._jobs_of(role)
        for job in jobs:
            role.task_began()
            self._tasks.spawn(self._repeat(role, job), name=f"{job.name} {role.replica.topic}-{role.replica.index}")

    def _jobs_of(self, role: Role) -> Sequence[Job]:
        if role.leads:
            return (Job("copy", self.copying, copy_round), Job("expire", self.expiring, expire_round))
        return (Job("follow", self.following, follow_round),)

    def _end(self, role: Role) -> None:
        role.end()
        self._gauges.hide(role)
        del self._roles[role.partition]
        del self._jobs[role]

    def _leave(self, role: Role, *, erase_remote: bool) -> None:
        self._end(role)
        if erase_remote:
            self._erasing[role.partition] = False
            self._tasks.spawn(self._erase(role), name=f"erase {role.replica.topic}-{role.replica.index}")
        else:
            self._forget(role.partition)

    def _forget(self, partition: TopicIdPartition) -> None:
        """Nothing is left to do for it here."""
        self.tier.metadata.unassign([partition])
        if not any(other.topic == partition.topic for other in self._roles):
            self.tier.meters.forget(partition.topic)

    def _switched_off(self, role: Role, log: PartitionLog) -> None:
        """The topic is tiered no more (KIP-950): the log begins with its first local record, and the leader deletes
        what is in the tier."""
        leads = role.replica.is_leader
        metadata = self.tier.metadata
        if metadata.is_ready(role.partition):
            self.tier.given_up.add(role.partition, [one.id for one in metadata.cache(role.partition).segments()])
        log.set_copied(Offset(-1))
        if leads:
            self._begin_with_local(role.replica, log)
            if self.role_of(role.replica) is not role:
                return  # it went with its directory
        self._leave(role, erase_remote=leads and log.config.remote_log_delete_on_disable)

    def _begin_with_local(self, replica: Replica, log: PartitionLog) -> None:
        """What was in the tier is no part of this leader's log any more."""
        try:
            log.increment_log_start(log.local_log_start_offset)
        except KafkaError as error:  # its directory is offline, and the next leader does it
            self.tier.report("remote log: the log start has not moved", replica, error)

    # -- work

    async def ready(self, role: Role) -> None:
        """Until the metadata of its partition is known. Raises MetadataNotReady where that takes too long."""
        partition = role.partition
        if not await self.tier.metadata.wait_ready(partition, self._interval):
            raise MetadataNotReady(
                f"the remote log metadata of {partition.topic}-{partition.partition} is not read yet"
            )

    async def run_now(self, replica: Replica) -> None:
        """One round of each of its jobs, at once. Raises what the round raises."""
        role = self.role_of(replica)
        if role is None:
            return
        await self.ready(role)
        self.tier.copies.forget()
        role.attempts.forget()
        for job in self._jobs.get(role, ()):
            async with job.running:
                await job.work(self.tier, role)

    @property
    def _interval(self) -> float:
        return float(self.tier.get(INTERVAL)) / 1000

    async def _repeat(self, role: Role, job: Job) -> None:
        try:
            if delay := self.tier.get(INITIAL_DELAY):
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

    async def _once(self, role: Role, job: Job) -> None:
        try:
            with cancelled_calls():
                await job.work(self.tier, role)
        except FAILURES as error:
            self.tier.report(f"remote log: {job.name} failed", role.replica, error)

    async def _erase(self, role: Role) -> None:
        """Delete what the tier has of a partition now. Where it is tiered again meanwhile, what is not announced to be
        deleted stays: brokers may have deleted their own copies of it since."""
        await role.idle()
        metadata, partition, replica = self.tier.metadata, role.partition, role.replica

        def still_wanted() -> bool:
            log = replica.log
            return self._erasing.get(partition, False) or (log is not None and not log.remote_enabled)

        def may_delete() -> bool:
            # A topic that was deleted stays so; one that was switched off may be on again, under another leader.
            return self._erasing.get(partition, False) or self.tier.in_session()

        if await metadata.wait_ready(partition, READY_TO_ERASE):
            left: Sequence[RemoteLogSegmentMetadata] = metadata.cache(partition).segments()
        else:
            left = ()
            self.tier.events.error(
                "segments stay in the tier: their metadata was not read",
                topic=partition.topic,
                partition=partition.partition,
            )
        for _ in range(ERASING_ATTEMPTS):
            left = await erase(self.tier, role, left, still_wanted, may_delete)
            if not left:
                break
            await self.tier.runtime.clock.sleep(self._interval)
        if left:
            self.tier.events.error(
                "segments stay in the tier", topic=partition.topic, partition=partition.partition, count=len(left)
            )
        if self._erasing.pop(partition, False):
            self.tier.given_up.forget(partition)
        if partition not in self._roles:
            self._forget(partition)
