"""`milena tier restore`: creates the directory of a new cluster that can read the data of a tier.

It writes the brokers' log directories with logs that start in the tier, the metadata topic among them, and a snapshot
of the metadata log with the topics under their old ids. `settings` is written last: a directory without it is not a
complete one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from uuid import UUID

from milena.command_line.errors import UserError
from milena.command_line.options import Values, nearest
from milena.command_line.table import say
from milena.commands.tier.cluster_topics import ClusterTopics, topics_in
from milena.commands.tier.formatting import counted, ranges
from milena.commands.tier.opening import find_metadata, log_dirs_of, run_in_loop, sources_of, tier_of
from milena.commands.tier.restored_cluster import Target, write_cluster
from milena.config.keys import TOPIC_KEYS
from milena.config.topic_config import validate_topic_config
from milena.protocol.errors import KafkaError
from milena.protocol.uuids import from_text
from milena.runtime.context import Runtime
from milena.storage.manager.log_dir import DirectoryError
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.settings import REPLICATION_FACTOR, MetadataTopicSettings
from milena.tiered.offline.cluster_restore import CannotRestore, Restoration, Wishes, plan
from milena.tiered.offline.epoch_history import lineage_of_replicas
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.segments.segment_metadata import TopicIdPartition
from milena.tiered.store.remote_storage import RemoteStorage, RemoteStorageError
from milena.tiered.store.tier_config import remote_storage
from milena.tiered.store.tier_names import ROOT
from milena.up import locks
from milena.up.layout import ClusterDir
from milena.up.plan import check_overrides, nodes_of, write_properties
from milena.up.settings import Settings, draw_cluster_id, save, tier_place

PLACEHOLDER_PORT = 1
"""`milena up` chooses the controller's port."""
KEPT = {"remote.storage.enable": "true", "retention.ms": "-1", "retention.bytes": "-1"}
"""The configuration of restored topics: no records are deleted until a user changes it."""
COPY_DISABLE = "remote.log.copy.disable"


def restore(values: Values) -> int:
    """Create the directory and return the exit code. Raises UserError, after it has removed the files that it had
    written."""
    cluster = ClusterDir(values.dir)
    place = tier_place(values.tier or cluster.remote).rstrip("/").removesuffix(f"/{ROOT}")
    target = _target(values, cluster, place)
    wishes = Wishes(_topics(values.topic), _counts(values.partitions), values.skip_gaps)
    log_dirs = log_dirs_of(values.metadata)
    _check_empty(cluster)
    _check_writable(place, target)
    made = not os.path.exists(cluster.path)
    cluster.create()
    lock = locks.lock_directory(cluster.path, cluster.lock)
    try:
        for node in target.nodes:
            write_properties(target.settings, node, target.nodes[0])
        code = run_in_loop(lambda runtime: _restore(runtime, target, values, wishes, log_dirs))
        target.settings.controller_port = None
        save(cluster, target.settings)
    except BaseException as error:
        _clean(target, made=made)
        if isinstance(error, CannotRestore | DirectoryError | KafkaError):
            raise UserError(str(error)) from None
        raise
    finally:
        os.close(lock)
    return code


def _target(values: Values, cluster: ClusterDir, place: str) -> Target:
    settings = Settings()
    settings.take(values)
    settings.tier = "" if place == cluster.remote else place
    settings.cluster_id = settings.cluster_id or draw_cluster_id()
    settings.controller_port = PLACEHOLDER_PORT
    if values.storage_options:
        settings.overrides = [*settings.overrides, ("rsm.config.options", values.storage_options)]
    replicas = min(3, settings.brokers) if values.replicas is None else values.replicas
    if not 1 <= replicas <= settings.brokers:
        raise UserError(f"--replicas {replicas}: there are only {settings.brokers} brokers")
    for key, _ in values.config:
        if key not in TOPIC_KEYS:
            raise UserError(f"--config {key}: no such topic configuration{nearest(key, list(TOPIC_KEYS))}")
    nodes = nodes_of(cluster, settings)
    check_overrides(settings, nodes)
    return Target(cluster, settings, nodes, replicas, KEPT | dict(values.config))


def _topics(words: Sequence[str]) -> dict[str, UUID | None]:
    """Parse ``NAME`` or ``NAME=ID``. Raises UserError."""
    found: dict[str, UUID | None] = {}
    for word in words:
        name, equals, text = word.partition("=")
        try:
            found[name] = from_text(text) if equals else None
        except ValueError:
            raise UserError(f"--topic {word}: {text} is not a topic id") from None
    return found


def _counts(pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    for name, text in pairs:
        if not text.isdecimal() or int(text) < 1:
            raise UserError(f"--partitions {name}={text}: not a number of partitions")
    return {name: int(text) for name, text in pairs}


def _check_empty(cluster: ClusterDir) -> None:
    """Raise UserError if the directory contains anything but a tier."""
    if cluster.exists():
        raise UserError(f"{cluster.path} already has a cluster: restore into a new directory")
    if os.path.isdir(cluster.path):
        found = sorted(set(os.listdir(cluster.path)) - {os.path.basename(cluster.remote), ".lock"})
        if found:
            raise UserError(f"{cluster.path} is not empty: it has {', '.join(found[:5])}")


def _check_writable(place: str, target: Target) -> None:
    """Raise UserError if the tier cannot be written, since the new cluster will copy to it."""
    if "://" in place:
        return
    root = os.path.join(place, ROOT)
    if not os.path.isdir(root):
        raise UserError(f"{place} is not a tier: there is no {root}")
    copies = target.topic_config.get(COPY_DISABLE, "").lower() != "true"
    if copies and not os.access(root, os.W_OK | os.X_OK):
        raise UserError(f"{root} cannot be written, but the cluster would copy to it; --config {COPY_DISABLE}=true")


def _clean(target: Target, *, made: bool) -> None:
    """Remove the files that were written."""
    for name in [node.name for node in target.nodes]:
        shutil.rmtree(target.cluster.folder(name), ignore_errors=True)
    shutil.rmtree(target.cluster.logs, ignore_errors=True)
    for path in (target.cluster.settings, target.cluster.lock):
        if os.path.exists(path):
            os.unlink(path)
    if made:
        os.rmdir(target.cluster.path)


async def _restore(runtime: Runtime, target: Target, values: Values, wishes: Wishes, log_dirs: Sequence[str]) -> int:
    broker = target.config(target.brokers[0])
    validate_topic_config(broker, target.topic_config)
    settings = MetadataTopicSettings.of(broker.under(broker.get_str("remote.log.metadata.manager.impl.prefix")))
    if settings.replication_factor > target.settings.brokers:
        raise UserError(
            f"{REPLICATION_FACTOR}={settings.replication_factor}: there are only {target.settings.brokers} brokers"
        )
    place = tier_of(target.settings.tier or target.cluster.remote, values.storage_options)
    storage = remote_storage(runtime, *place, "milena-tier")
    disk = runtime.disk

    async def of_replicas(one: TopicIdPartition) -> Lineage | None:
        leader = None if history is None else history.leaders.get(one)
        return await disk.offload(lineage_of_replicas, disk, log_dirs, one, leader)

    try:
        metadata, history = await disk.offload(find_metadata, disk, log_dirs)
        if values.metadata and history is None:
            where = ", ".join(log_dirs) or "no log directory at all"
            raise UserError(
                f"--metadata {' '.join(values.metadata)}: there is no metadata topic in {where}; without --metadata "
                "the tier's files are used",
            )
        restoration = await plan(storage, history, of_replicas, wishes)
        if history is not None:
            topics, _ = await disk.offload(topics_in, disk, values.metadata)
            count = None if topics is None else topics.partitions(REMOTE_LOG_METADATA_TOPIC)
            restoration.notes[:0] = parts_of_metadata(history.numbers, count)
            restoration.notes += [] if topics is None else not_tiered(restoration, topics)
    finally:
        await storage.close()
    await write_cluster(runtime, target, restoration, settings)
    await _own(remote_storage(runtime, *place, "milena-tier"), target)
    say(sources_of(target.settings.tier or target.cluster.remote, metadata))
    _print_summary(target, restoration)
    return 0


async def _own(storage: RemoteStorage, target: Target) -> None:
    """Record the new cluster as the owner of the tier. A note is printed if the tier is read-only."""
    try:
        await storage.own(target.settings.cluster_id)
    except RemoteStorageError as error:
        say(f"note: the tier still belongs to the former cluster, so that nothing can be copied to it: {error}")
    finally:
        await storage.close()


def parts_of_metadata(numbers: Collection[int], count: int | None) -> list[str]:
    """Return a note that lists the partitions of the metadata topic that were found; empty if all ``count`` were found.
    A broker only has the partitions of which it is a replica."""
    if count is not None and set(numbers) >= set(range(count)):
        return []
    if count is None:
        of, others = counted(len(numbers), "partition"), "others described, if there are any,"
    else:
        of, others = f"{len(numbers)} of the {counted(count, 'partition')}", "the others described"
    where = f"of the metadata topic: {ranges(numbers)}"
    return [f"--metadata has {of} {where}; what {others} is taken from the tier's files"]


def not_tiered(restoration: Restoration, topics: ClusterTopics) -> Iterator[str]:
    """Yield notes about the topics that the old cluster had deleted or removed from the tier."""
    for topic in restoration.topics:
        why = topics.not_tiered(TopicIdPartition(topic.id, topic.name, 0))
        if why is not None:
            yield f"{topic.name}: according to --metadata, {why}; choose the topics with --topic"


def _print_summary(target: Target, restoration: Restoration) -> None:
    for note in restoration.notes:
        say(f"note: {note}")
    for topic in restoration.topics:
        say(f"{topic.name}: {counted(topic.partitions, 'partition')}")
        for number in range(topic.partitions):
            log = topic.logs.get(number)
            if log is None:
                say(f"  {number}: empty")
            else:
                offsets = f"offsets {log.log_start} to {log.lineage.log_end - 1}"
                segments = counted(len(log.segments), "segment")
                say(f"  {number}: {offsets}, {segments}, leader epochs up to {log.leader_epoch}")
    say(
        f"`milena up --dir {target.cluster.path}` starts it; topics keep their data until their "
        "configuration is changed"
    )
