"""The lab commands that let a broker do at once what it does from time to time, and wait until nothing is left to do.

A broker is idle if no task of the tier or of the log cleaner runs, no segment waits to be copied, the replicas of its
partitions on brokers that are not fenced are in the ISR and have all records, and the replicas that it follows fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.follower.fetch_states import FetchState

if TYPE_CHECKING:
    from milena.broker.follower.fetchers import Fetchers
    from milena.broker.hosting.log_mover import LogMover
    from milena.broker.replica.partition import Partition
    from milena.broker.replica.partitions import PartitionSet
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.types import NodeId
    from milena.runtime.context import Runtime
    from milena.storage.log.unified_log import UnifiedLog
    from milena.storage.manager.log_manager import LogManager
    from milena.tiered.work.tier_manager import RemoteLogManager

POLL: Final = 0.01
"""Seconds between two checks whether the broker is idle."""
SHOWN: Final = 10
"""The number of reasons in an error message."""
SETTLED: Final = frozenset({FetchState.FETCHING, FetchState.FAILED})
"""The states that last until something else happens."""


class Worked(Protocol):
    """What the commands use of the broker."""

    @property
    def fetchers(self) -> Fetchers: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def log_mover(self) -> LogMover: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def node_id(self) -> NodeId: ...
    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def tier(self) -> RemoteLogManager | None: ...


class WorkLabCommands:
    """The commands of one broker, as ``milena.node.serving.lab_catalog`` describes them."""

    def __init__(self, node: Worked) -> None:
        self._node = node

    def table(self) -> dict[str, Callable[..., object]]:
        return {
            "roll": self.roll,
            "flush": self.flush,
            "flush_all": self.flush_all,
            "retain": self.retain,
            "compact": self.compact,
            "copy": self.copy,
            "expire": self.expire,
            "clean": self.clean,
            "tiering": self.tiering,
            "busy": self.busy,
            "wait_idle": self.wait_idle,
        }

    # -- the local log

    def roll(self, topic: str, partition: int) -> dict[str, int]:
        return {"base_offset": self._node.partitions.get(topic, partition).online_log.roll().base_offset}

    async def flush(self, topic: str, partition: int) -> dict[str, int]:
        log = self._node.partitions.get(topic, partition).online_log
        await self._node.logs.flush(log)
        return {"recovery_point": log.recovery_point}

    async def flush_all(self) -> dict[str, int]:
        logs = list(self._node.logs)
        await self._node.logs.flush(*logs)
        return {"logs": len(logs)}

    def retain(self, topic: str | None = None, partition: int | None = None) -> dict[str, int]:
        if partition is not None and topic is None:
            raise ValueError("partition requires topic")
        if topic is not None and partition is not None:
            logs = [self._node.partitions.get(topic, partition).online_log]
        else:
            logs = [log for log in self._node.logs if topic in (None, log.topic)]
        now = self._node.runtime.clock.time_ms()
        deleted = {f"{log.topic}-{log.partition}": log.delete_old_segments(now) for log in logs}
        return {name: count for name, count in deleted.items() if count}

    async def compact(self, topic: str, partition: int) -> dict[str, int | None]:
        log = self._node.partitions.get(topic, partition).online_log
        await self._node.logs.flush(log)  # records above the checkpointed high watermark are not cleaned
        figures = await self._node.logs.cleaner.clean_now(log)
        return {"cleaned_to": log.cleaned_to} | ({} if figures is None else figures._asdict())

    # -- the tier

    async def copy(self, topic: str, partition: int) -> dict[str, int]:
        return await self._in_tier(topic, partition, "copy")

    async def expire(self, topic: str, partition: int) -> dict[str, int]:
        return await self._in_tier(topic, partition, "expire")

    async def clean(self, topic: str, partition: int) -> dict[str, int]:
        return await self._in_tier(topic, partition, "clean")

    async def tiering(self, topic: str, partition: int) -> dict[str, int]:
        replica = self._node.partitions.get(topic, partition)
        if self._node.tier is not None:
            from milena.broker.tier_lab_commands import work_now

            await work_now(self._node.tier, replica)
        return _bounds_in_tier(replica.online_log)

    async def _in_tier(self, topic: str, partition: int, job: str) -> dict[str, int]:
        """Run one job of the leader. Raises ValueError, also if this broker does not lead a tiered partition."""
        replica = self._node.partitions.get(topic, partition)
        if self._node.tier is None:
            raise ValueError("this broker has no remote tier (remote.log.storage.system.enable)")
        if not replica.is_leader:
            raise ValueError(f"broker {replica.leader} leads {topic}-{partition}")
        from milena.broker.tier_lab_commands import job_now

        await job_now(self._node.tier, replica, job)
        return _bounds_in_tier(replica.online_log)

    # -- idle

    def busy(self) -> dict[str, object]:
        return {"reasons": list(self._reasons()), "metadata_offset": self._node.image.offset}

    async def wait_idle(self, seconds: float = 30.0) -> dict[str, object]:
        clock = self._node.runtime.clock
        deadline = clock.monotonic() + seconds
        while reasons := list(self._reasons()):
            if clock.monotonic() >= deadline:
                more = f"; and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
                raise ValueError(f"not idle after {seconds:g} s: {'; '.join(reasons[:SHOWN])}{more}")
            await clock.sleep(POLL)
        return self.busy()

    def _reasons(self) -> Iterator[str]:
        node = self._node
        for log in node.logs.cleaner.cleaner.in_progress:
            yield f"{log.topic}-{log.partition}: the log is being cleaned"
        for partition in node.log_mover.moving:
            yield f"{partition.topic}-{partition.index}: the log is being moved to another directory"
        for followed in node.fetchers.followers:
            if followed.state not in SETTLED:
                yield f"{followed.partition.topic}-{followed.partition.index}: the follower is {followed.state.value}"
        for partition in node.partitions:
            yield from self._followers(partition)
        if node.tier is not None:
            yield from node.tier.unfinished()

    def _followers(self, partition: Partition) -> Iterator[str]:
        """Yield what the followers of a partition that this broker leads lack."""
        leading, log = partition.leader_state, partition.log
        if leading is None or log is None:
            return
        name = f"{partition.topic}-{partition.index}"
        registration, image = partition.registration, self._node.image
        if set(registration.isr) != set(registration.maximal_isr):
            yield f"{name}: a change of the ISR is pending"
        for node, follower in leading.followers.items():
            broker = image.brokers.get(node)
            if broker is None or broker.fenced or broker.in_controlled_shutdown:
                continue
            if follower.log_end < log.log_end_offset:
                yield f"{name}: broker {node} does not have all records"
            elif node not in registration.isr:
                yield f"{name}: broker {node} is not in the ISR yet"


def _bounds_in_tier(log: UnifiedLog) -> dict[str, int]:
    return {
        "log_start_offset": log.log_start_offset,
        "local_log_start_offset": log.local_log_start_offset,
        "highest_offset_in_remote_storage": log.highest_offset_in_remote_storage,
    }
