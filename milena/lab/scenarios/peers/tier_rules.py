"""Brokers whose tasks on the tier follow Kafka's rules from before a bug fix."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from milena.broker.server import Broker
from milena.config.node_config import NodeConfig
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.context import Runtime
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.eligibility import candidates
from milena.tiered.segments.lineage import filtered, is_within_leader_epochs
from milena.tiered.segments.segment_metadata import UNFENCED, RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.segments.tiered_offsets import Listing
from milena.tiered.shared.tier import Tier
from milena.tiered.work.copying import check_place, prepare
from milena.tiered.work.deletion import announce_deletion, delete_segment, finish_deletion, update_of
from milena.tiered.work.expiration import view_of
from milena.tiered.work.retention import Expiration, Validity, decide
from milena.tiered.work.roles import ReplicaRole
from milena.tiered.work.tier_manager import Job, RemoteLogManager

_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
Round: TypeAlias = Callable[[Tier, ReplicaRole], Awaitable[None]]


class OtherRules(Broker):
    """Runs other functions than Milena's jobs for the partitions that it leads. ``rounds``: by the names of jobs; None
    for a job that is left out."""

    def __init__(self, runtime: Runtime, config: NodeConfig, rounds: dict[str, Round | None]) -> None:
        self._rounds = rounds
        super().__init__(runtime, config)

    def _new_tier(self, config: NodeConfig) -> RemoteLogManager | None:
        manager = super()._new_tier(config)
        if manager is not None:
            ours = manager._jobs_of
            manager._jobs_of = lambda role: self._others(role, ours(role))  # type: ignore[method-assign]
        return manager

    def _others(self, role: ReplicaRole, jobs: Sequence[Job]) -> Sequence[Job]:
        if not role.leads:
            return jobs
        wanted = [(job, self._rounds.get(job.name, job.work)) for job in jobs]
        return [Job(job.name, job.pool, work) for job, work in wanted if work is not None]


async def expire_unfenced(tier: Tier, role: ReplicaRole) -> None:
    """As in Kafka: a broker that believes to be the leader deletes, even if a later leader has fenced it."""
    await _expire(tier, role)


async def expire_by_own_lineage(tier: Tier, role: ReplicaRole) -> None:
    """The rule of KIP-1272's draft, if the broker that deletes applies it: publish DELETE_SEGMENT_STARTED, then ask
    isRemoteSegmentWithinLeaderEpochs() with its own leader epochs, and delete the files of a segment that is within
    them."""
    await _expire(tier, role, delete=_delete_within_own_epochs)


async def delete_by_lineage_of_leader(tier: Tier, role: ReplicaRole) -> None:
    """The rule of KIP-1272's draft, if the leader applies it: the files of a segment in DELETE_SEGMENT_STARTED, by
    whatever broker, are deleted unless the segment is within the leader's epochs. It decides about no segment itself,
    and withdraws no deletion."""
    log = role.log
    if log is None or not tier.metadata.is_ready(role.partition):
        return
    for segment in tier.metadata.cache(role.partition).segments():
        if segment.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED and not _is_within_epochs(log, segment):
            await finish_deletion(tier, segment, UNFENCED)


async def mark_only(tier: Tier, role: ReplicaRole) -> None:
    """Publish DELETE_SEGMENT_STARTED, and leave the files to the leader (``delete_by_lineage_of_leader``)."""
    await _expire(tier, role, delete=_mark)


async def expire_counting_failed_copies(tier: Tier, role: ReplicaRole) -> None:
    """KAFKA-17062: an unfinished copy counts for retention like a finished one."""
    await _expire(tier, role, failed_count=True)


async def expire_unseeded(tier: Tier, role: ReplicaRole) -> None:
    """KAFKA-20732: a new leader applies retention before it knows how much of the log is in the tier. KAFKA-15351: nor
    does it know where the remote log starts."""
    await _expire(tier, role)


async def expire_to_last_listed(tier: Tier, role: ReplicaRole) -> None:
    """KAFKA-16890: the log start moves after the last segment of the list, not after the one with the highest
    offset."""
    await _expire(tier, role, to_last_listed=True)


async def expire_only_of_known_epochs(tier: Tier, role: ReplicaRole) -> None:
    """KAFKA-16511: a segment of an epoch before the log's first one is taken for one of another log."""
    await _expire(tier, role, validity=OnlyKnownEpochs())


async def copy_unclipped(tier: Tier, role: ReplicaRole) -> None:
    """KAFKA-15241: copied offsets of an epoch count even if the epoch ends earlier in this log. Copies nothing: in the
    scenario nothing is left to copy then."""
    log = role.log
    if log is not None and tier.metadata.is_ready(role.partition):
        cache = tier.metadata.cache(role.partition)
        ends = (cache.highest_offset_for_epoch(entry.epoch) for entry in reversed(log.epochs.entries))
        log.raise_highest_offset_in_remote_storage(next((end for end in ends if end is not None), Offset(-1)))


async def copy_without_epochs(tier: Tier, role: ReplicaRole) -> None:
    """As in Kafka: the events of a copy have no leader epoch, so that no fence of a later leader applies to them."""
    log = role.log
    if log is None or not tier.metadata.is_ready(role.partition):
        return
    await check_place(tier, role)
    bases = [segment.base_offset for segment in log.segments]
    copied, stable = log.highest_offset_in_remote_storage, log.last_stable_offset
    for base, end in candidates(bases, copied=copied, log_start=log.log_start_offset, stable=stable):
        segment = next(one for one in log.segments if one.base_offset == base)
        prepared = prepare(tier, role, log, segment, end)
        metadata = replace(prepared.metadata, leader_epoch=UNFENCED)
        await tier.metadata.add(metadata)
        await tier.storage.copy(metadata, prepared.files)
        await tier.metadata.update(update_of(tier, metadata, _FINISHED, UNFENCED))
        log.raise_highest_offset_in_remote_storage(metadata.end_offset)


async def _delete(tier: Tier, _log: UnifiedLog, segment: RemoteLogSegmentMetadata) -> None:
    await delete_segment(tier, segment, UNFENCED)


async def _delete_within_own_epochs(tier: Tier, log: UnifiedLog, segment: RemoteLogSegmentMetadata) -> None:
    await announce_deletion(tier, segment, UNFENCED)
    if _is_within_epochs(log, segment):
        await finish_deletion(tier, segment, UNFENCED)


async def _mark(tier: Tier, _log: UnifiedLog, segment: RemoteLogSegmentMetadata) -> None:
    await announce_deletion(tier, segment, UNFENCED)


def _is_within_epochs(log: UnifiedLog, segment: RemoteLogSegmentMetadata) -> bool:
    return is_within_leader_epochs(segment, log_end=log.log_end_offset, leader_epochs=filtered(log.epochs.entries))


async def _expire(
    tier: Tier,
    role: ReplicaRole,
    *,
    delete: Callable[[Tier, UnifiedLog, RemoteLogSegmentMetadata], Awaitable[None]] = _delete,
    failed_count: bool = False,
    to_last_listed: bool = False,
    validity: Validity | None = None,
) -> None:
    log = role.log
    if log is None or not tier.metadata.is_ready(role.partition):
        return
    cache: Listing = tier.metadata.cache(role.partition)
    view = replace(view_of(log), copied=None)  # Kafka does not ask what is copied
    if failed_count:
        failed = sum(one.size for one in cache.segments() if one.state is not _FINISHED)
        view = replace(view, retention_bytes=max(0, view.retention_bytes - failed))
        cache = AllFinished(cache)
    expiration = decide(cache, view, now=tier.runtime.clock.time_ms(), validity=validity)
    start = _after_last(expiration) if to_last_listed else expiration.log_start
    if start is not None:
        log.update_log_start_from_remote_tier(start)
    for segment in (*expiration.delete, *expiration.dangling):
        await delete(tier, log, segment)


def _after_last(expiration: Expiration) -> Offset | None:
    return Offset(expiration.delete[-1].end_offset + 1) if expiration.delete else None


class OnlyKnownEpochs(Validity):
    """Checks the first epoch too, as Kafka did up to 3.7."""

    __slots__ = ()

    def holds(self, segment: RemoteLogSegmentMetadata, lineage: Sequence[EpochEntry], log_end: Offset) -> bool:
        return segment.epochs[0].epoch >= lineage[0].epoch and super().holds(segment, lineage, log_end)


class AllFinished:
    """Implements ``Listing`` on top of another one, with every copy finished."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing

    def highest_offset_for_epoch(self, epoch: LeaderEpoch) -> Offset | None:
        return self._listing.highest_offset_for_epoch(epoch)

    def segments_of_epoch(self, epoch: LeaderEpoch) -> Sequence[RemoteLogSegmentMetadata]:
        return [replace(one, state=_FINISHED) for one in self._listing.segments_of_epoch(epoch)]

    def segments(self) -> Sequence[RemoteLogSegmentMetadata]:
        return [replace(one, state=_FINISHED) for one in self._listing.segments()]

    def counts(self, segment: RemoteLogSegmentMetadata) -> bool:
        return self._listing.counts(segment)
