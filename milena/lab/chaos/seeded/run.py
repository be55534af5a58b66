"""A seeded run: a controller and three to five brokers under load and faults; the trace and the violations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Final

from milena.client import admin
from milena.client.cluster import Cluster, ClusterView
from milena.lab.chaos.groups.ending import change_coordinators, work_without_faults
from milena.lab.chaos.groups.workload import GroupWorkload
from milena.lab.chaos.seeded.administrator import Administrator
from milena.lab.chaos.seeded.ending import copied, final_commits, final_logs, final_topics, healthy
from milena.lab.chaos.seeded.flipped_bytes import FlippedBytes
from milena.lab.chaos.seeded.keyed_workload import IN_TIER, IN_TIER_SETTINGS, KEYED, KeyedWorkload
from milena.lab.chaos.seeded.keyed_workload import PARTITIONS as KEYED_PARTITIONS
from milena.lab.chaos.seeded.keyed_workload import SETTINGS as OF_CLEANER
from milena.lab.chaos.seeded.keyed_workload import TOPIC as KEYED_TOPIC
from milena.lab.chaos.seeded.mounts import MountTroubles
from milena.lab.chaos.seeded.nemesis import APART, KINDS, METADATA, UNMOUNT, Nemesis
from milena.lab.chaos.seeded.tier_administrator import TierAdministrator
from milena.lab.chaos.seeded.tier_losses import Losses
from milena.lab.chaos.seeded.tier_troubles import TierTroubles
from milena.lab.chaos.seeded.workload import Workload
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.histories.checker import check
from milena.lab.histories.events import AllowedDeletion, Event, FinalLog
from milena.lab.histories.group_events import Expiry, Settled
from milena.lab.invariants.compacted_epochs import check_epochs
from milena.lab.world.tiering import SETTINGS as OF_TIER
from milena.lab.world.tiering import TIERED, UNLIMITED, metadata_topic, with_tier
from milena.lab.world.trace import Trace
from milena.lab.world.world import World, simulate
from milena.runtime.randomness import Randomness

BROKERS: Final = (3, 3, 3, 4, 5)
"""One of these, at random."""
REPLICAS: Final = 3
SHARED: Final = "shared"
"""The topic that the group reads; every append is synced before it is answered."""
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "firm": {"min.insync.replicas": "2", "internal.segment.bytes": "5000"},
    "loose": {"unclean.leader.election.enable": "true", "internal.segment.bytes": "20000"},
    SHARED: {"min.insync.replicas": "2", "flush.messages": "1", "internal.segment.bytes": "20000"},
}
WRITERS: Final = (("firm", 0, -1), ("firm", 1, -1), ("loose", 0, -1), ("loose", 0, 1), (SHARED, 0, -1), (SHARED, 1, -1))
"""Topic, partition, acks."""
PARTITIONS: Final = list(dict.fromkeys((topic, number) for topic, number, _ in WRITERS))
PASSING_TOPIC: Final = "made-again"
"""Groups commit offsets of this topic, which is deleted and created again."""
COMMITTED: Final = [*(partition for partition in PARTITIONS if partition[0] in ("firm", SHARED)), (PASSING_TOPIC, 0)]
"""Topics whose offsets are committed by the groups' own members, without reading them."""
INTERNAL: Final = "__"
"""Prefixes of the topics that the cluster creates for itself."""
DISKS: Final = ("/data-1", "/data-2")
METADATA_DISK: Final = "/metadata"
CONTROLLER_DISK: Final = "/data"
"""The brokers' log directories. A broker without the metadata one ends; it survives without one of the others."""
SETTINGS: Final[dict[str, object]] = {
    "broker_session_timeout_ms": 3000,
    "broker_heartbeat_interval_ms": 500,
    "group_min_session_timeout_ms": 1000,
    "offsets_topic_replication_factor": REPLICAS,
    "offsets_topic_num_partitions": 2,
    "replica_high_watermark_checkpoint_interval_ms": 1000,
    "replica_lag_time_max_ms": 5000,
    "metadata_log_max_record_bytes_between_snapshots": 20_000,
}
EXPIRY: Final[dict[str, object]] = {"offsets_retention_check_interval_ms": 2000}
STEPS: Final = 5
"""Number of node faults in one run; link faults are added."""
LONGEST_RUN: Final = 900.0
LONGEST_STEP: Final = 30.0
LAST_ANSWERS: Final = 2.0
"""Seconds after which requests in flight have arrived, and brokers know the leaders."""
RECOVERY_SECONDS: Final = 120.0
"""Virtual seconds within which everything must work again after the last fault."""


@dataclass(frozen=True)
class Report:
    """The result of one run. ``digest`` covers everything delivered and traced: equal for equal seeds."""

    digest: str
    violations: list[str]
    trace: list[str]
    history: list[Event]
    seconds: float
    """Virtual time."""


def has_groups(seed: int) -> bool:
    """Whether the run has members that commit and groups that are deleted, beside the one group of readers."""
    return seed // 2 % 2 == 0


def has_faults_apart(seed: int) -> bool:
    """Whether the run also unmounts the tier and turns bits of metadata logs over, unless its kinds of faults are
    given."""
    return seed // 4 % 2 == 1


def has_compaction(seed: int) -> bool:
    """Whether the run has a compacted topic, and small segments of the groups' offsets."""
    return seed // 8 % 2 == 1


def compacts_tier(seed: int) -> bool:
    """Whether the compacted topic is tiered, if the run has both: one seed of eight."""
    return seed // 16 % 2 == 0


def run_seed(
    seed: int,
    *,
    steps: int = STEPS,
    faults: Collection[str] = KINDS,
    tier: bool | None = None,
    groups: bool | None = None,
    compaction: bool | None = None,
    listener: Callable[[str], object] | None = None,
) -> Report:
    """Run one seed to its end. ``tier``: whether some topics are tiered; None: in odd seeds. ``groups``: as returned by
    ``has_groups``; None: in two seeds of four, one of them with a tier. ``compaction``: as by ``has_compaction``.

    Raises InvariantBroken, and any error that ends a node unexpectedly; violations found in the history are in the
    report.
    """

    async def run(world: World) -> Report:
        async with asyncio.timeout(LONGEST_RUN + LONGEST_STEP * steps):
            has_tier = seed % 2 == 1 if tier is None else tier
            more_groups = has_groups(seed) if groups is None else groups
            kinds = faults
            if set(faults) == set(KINDS) and not has_faults_apart(seed):
                kinds = [kind for kind in faults if kind not in APART]
            compacts = has_compaction(seed) if compaction is None else compaction
            topic = None
            if compacts:
                topic = {**KEYED_TOPIC, **IN_TIER} if has_tier and compacts_tier(seed) else KEYED_TOPIC
            return await _Run(world, seed, listener, has_tier, more_groups, topic).run(steps, kinds)

    return simulate(run, seed=seed)


class _Run:
    def __init__(
        self,
        world: World,
        seed: int,
        listener: Callable[[str], object] | None,
        tier: bool,
        groups: bool,
        compacted: Mapping[str, str] | None,
    ) -> None:
        self._world = world
        self._random = Randomness(seed)
        self._apart = Randomness(seed)
        """Of ``APART``: whether they occur changes none of the other choices."""
        self._trace = Trace(listener)
        self._history: list[Event] = []
        self._topics = with_tier(TOPICS, self._random) if tier else TOPICS
        self._groups = groups
        self._compacted = compacted
        """The compacted topic's configuration."""
        self._of_keys = Randomness(seed)
        """Of the clients of the compacted topic."""
        self._expires = groups and not self._random.below(3)
        self._tiered = [name for name, configs in self._topics.items() if TIERED in configs]

    async def run(self, steps: int, faults: Collection[str]) -> Report:
        of_brokers = {"log_dirs": ",".join(DISKS), "metadata_log_dir": METADATA_DISK}
        count = self._random.choice(BROKERS)
        settings = {**SETTINGS, **(OF_TIER if self._tiered else {}), **(EXPIRY if self._expires else {})}
        settings |= OF_CLEANER if self._compacted else {}
        settings |= IN_TIER_SETTINGS if self._compacted and TIERED in self._compacted else {}
        cluster = await start_cluster(self._world, count, settings, of_brokers=of_brokers, watched=True)
        assert cluster.watch is not None
        cluster.watch.tell(self._trace.note)
        self._trace.note(f"{count} brokers are ready")
        async with cluster.client() as client:
            new = [
                admin.NewTopic(name, _partitions(name), REPLICAS, configs=configs)
                for name, configs in self._topics.items()
            ]
            if self._compacted:
                new.append(admin.NewTopic(KEYED, len(KEYED_PARTITIONS), REPLICAS, configs=self._compacted))
            if self._tiered:
                new.append(metadata_topic(REPLICAS))
                tiered = [*self._tiered, *([KEYED] if self._compacted and TIERED in self._compacted else ())]
                self._trace.note(f"tiered topics: {', '.join(tiered)}")
            assert set((await admin.create_topics(client, new)).values()) == {None}
            await self._work(cluster, client, steps, faults)
        self._check_failures(cluster)
        assert cluster.watch is not None
        cluster.watch.check_all()
        self._history += cluster.watch.voids
        found = [str(violation) for violation in check(self._history)]
        for text in found:
            self._trace.note(f"violation: {text}")
        for broker in cluster.brokers:
            await cluster.stop_broker(broker)
        await cluster.stop_controller()
        self._trace.note(f"{len(self._history)} client events; all nodes are shut down")
        digest = f"{self._world.digest()}-{self._trace.digest()}"
        return Report(digest, found, self._trace.lines, self._history, self._world.loop.time())

    async def _work(self, cluster: SimulatedCluster, client: Cluster, steps: int, faults: Collection[str]) -> None:
        """Clients work while faults occur; then they work a little longer without faults, and everything is read."""
        losses = Losses(cluster)
        workload = Workload(client, self._history, self._trace, self._random, losses.hole_at)
        administrator = Administrator(client, self._history, self._trace, self._random, workload.stopping)
        flips = FlippedBytes(cluster, self._trace, self._apart, of_brokers=METADATA_DISK, of_controller=CONTROLLER_DISK)
        disks = (*DISKS, METADATA_DISK)
        nemesis = Nemesis(cluster, self._trace, self._random, disks, faults, flips if METADATA in faults else None)
        assert cluster.watch is not None
        rules = cluster.watch.tier
        tier = TierTroubles(self._world.tier, rules.away, rules.lost, self._trace, self._random, faults, [KEYED])
        brokers = list(cluster.brokers)
        of_them = [(name, number) for name, number in PARTITIONS if name in self._tiered]
        retained = [partition for partition in of_them if self._topics[partition[0]]["retention.bytes"] != UNLIMITED]
        self._history += [AllowedDeletion(partition, None, "retention.bytes") for partition in retained]
        working: list[Coroutine[object, object, None]] = [workload.write(*writer, pause=0.6) for writer in WRITERS]
        working += [workload.share(SHARED), workload.share(SHARED), administrator.change_topics(REPLICAS)]
        working += [administrator.move(PARTITIONS, brokers, REPLICAS)]
        of_tier = TierAdministrator(
            client,
            {name: self._topics[name] for name in self._tiered},
            of_them,
            rules.freed,
            self._history,
            self._trace,
            self._random,
            workload.stopping,
        )
        now = client.runtime.clock.monotonic
        group_work = GroupWorkload(client, self._history.append, now, self._random, COMMITTED, expires=self._expires)
        if self._groups:
            working += [*group_work.all(), administrator.come_and_go(PASSING_TOPIC, REPLICAS)]
            self._history += [Expiry(0.0)] if self._expires else []
        keyed = KeyedWorkload(client, self._history, self._trace, self._of_keys, workload.stopping)
        if self._compacted:
            working += keyed.all(tiered=TIERED in self._compacted)
        if self._tiered:
            working += [workload.read_again(of_them, self._random)]
            working += [of_tier.delete_records(), of_tier.switch(), of_tier.change_topics(REPLICAS)]
        async with asyncio.TaskGroup() as reading:
            reading.create_task(workload.read(PARTITIONS), name="reader")
            async with asyncio.TaskGroup() as clients:
                for number, work in enumerate(working):
                    clients.create_task(work, name=f"client {number}")
                async with asyncio.TaskGroup() as troubles:
                    troubles.create_task(nemesis.trouble_nodes(steps))
                    troubles.create_task(nemesis.trouble_links(steps // 2))
                    if self._tiered:
                        troubles.create_task(tier.trouble(steps // 2))
                    if self._tiered and UNMOUNT in faults:
                        machines = [self._world.machine(host_of(number)) for number in brokers]
                        mounts = MountTroubles(self._world, machines, self._trace, self._apart)
                        troubles.create_task(mounts.trouble(steps // 2))
                self._trace.note("all faults are over")
                await asyncio.sleep(3)
                workload.stopping.set()
                group_work.stopping.set()
            self._history += nemesis.troubles
            await self._end(cluster, client, workload, of_tier, losses, group_work)
            await self._end_keyed(cluster, keyed)

    async def _end(
        self,
        cluster: SimulatedCluster,
        client: Cluster,
        workload: Workload,
        of_tier: TierAdministrator,
        losses: Losses,
        work: GroupWorkload,
    ) -> None:
        """Record the final state of the cluster; the readers reach its end."""
        watch = cluster.watch
        assert watch is not None

        async def mended() -> ClusterView:
            return await healthy(client, len(cluster.brokers), watch.shaken, losses, seconds=RECOVERY_SECONDS)

        if self._groups:
            await self._end_groups(cluster, client, work, mended)
        view = await mended()
        if not self._groups:
            self._history.append(Settled(client.runtime.clock.monotonic()))
        await of_tier.settle()
        await copied(cluster, seconds=RECOVERY_SECONDS)
        async with asyncio.timeout(RECOVERY_SECONDS):
            await self._read_everything(client, workload, view, losses)

    async def _end_groups(
        self,
        cluster: SimulatedCluster,
        client: Cluster,
        work: GroupWorkload,
        healthy: Callable[[], Awaitable[ClusterView]],
    ) -> None:
        """``healthy`` returns when all replicas are in sync."""

        async def kill(broker: int) -> None:
            self._trace.note(f"group coordinator {host_of(broker)} is terminated")
            await cluster.kill(host_of(broker))

        async def start(broker: int) -> None:
            await cluster.start_broker(broker)
            await healthy()

        await healthy()
        await asyncio.sleep(LAST_ANSWERS)
        self._history.append(Settled(client.runtime.clock.monotonic()))
        self._trace.note("group clients work without faults")
        await work_without_faults(work)
        await change_coordinators(client, kill, start, work.look)

    async def _read_everything(self, client: Cluster, workload: Workload, view: ClusterView, losses: Losses) -> None:
        logs = await final_logs(client, PARTITIONS, losses)
        self._history += logs
        workload.ends = {log.partition: _end_of(log) for log in logs if log.records}
        await self._drain_group(client, workload, {key: end for key, end in workload.ends.items() if key[0] == SHARED})
        others = [name for name in view.topics if name not in (*self._topics, KEYED) and not name.startswith(INTERNAL)]
        self._history += await final_topics(client, others)
        self._history += await final_commits(client, [partition for partition in PARTITIONS if partition[0] == SHARED])

    async def _drain_group(self, client: Cluster, workload: Workload, ends: Mapping[tuple[str, int], int]) -> None:
        """The group reaches the end of its topic. In a log that has lost everything there is nothing to commit."""
        member = workload.member(SHARED)
        while not set(ends.items()) <= (await workload.committed()).items():
            await workload.poll_and_commit(member)
            await workload.commit_behind_holes(member)
        await member.close()

    async def _end_keyed(self, cluster: SimulatedCluster, keyed: KeyedWorkload) -> None:
        if not self._compacted:
            return
        async with asyncio.timeout(RECOVERY_SECONDS):
            await keyed.end()
        for number, broker in cluster.brokers.items():
            for log in broker.logs:
                if log.config.compacted:
                    check_epochs(f"{log} of broker {number}", self._world.machine(host_of(number)).storage, log)

    def _check_failures(self, cluster: SimulatedCluster) -> None:
        """Nodes may end by themselves only if all their disks have failed."""
        for name, machine in cluster.world.machines.items():
            for text, error in machine.failures:
                if not isinstance(error, OSError):
                    raise AssertionError(f"{name} has ended: {text}") from error


def _partitions(topic: str) -> int:
    return sum(name == topic for name, _ in PARTITIONS)


def _end_of(log: FinalLog) -> int:
    return max([log.records[-1][0], *(last for _, last in log.holes)]) + 1
