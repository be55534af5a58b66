"""Random commands to a controller's state: what brokers, administrators and time may bring, in any order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final
from uuid import UUID

from milena.broker.replica.partition_registration import PartitionRegistration
from milena.controller.commands.alter_partition import Proposal, alter_partitions
from milena.controller.commands.brokers import unregister
from milena.controller.commands.directories import assign
from milena.controller.commands.features import FeatureUpdate, Upgrade, update_features
from milena.controller.commands.heartbeats import expire_one, fence_gone
from milena.controller.commands.leader_elections import balance, elect_leaders, elect_unclean
from milena.controller.commands.reassignment import Target, alter_reassignments
from milena.controller.commands.topics import NewPartitions, create_partitions
from milena.node.metadata.image import PartitionImage, TopicImage
from milena.protocol.errors import KafkaError
from milena.protocol.metadata_records import ConfigRecord
from milena.protocol.types import LOST_DIR, ZERO_UUID, NodeId
from tests.unit.controller.cluster import Cluster, directory

BROKERS: Final = range(1, 6)
TOPIC_RESOURCE: Final = 2


class RandomCommands:
    """Brokers hear of each change and take it, as they would from the metadata log."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        version = self._random.choice([30, 30, 30, 14, 9, 7])
        features = {"metadata.version": version}
        if version >= 23 and self._random.random() < 0.6:
            features["eligible.leader.replicas.version"] = 1
        self._cluster = Cluster(0, features=features)
        self._runs: Counter[int] = Counter()
        self._replicas: dict[tuple[UUID, int, int], PartitionRegistration] = {}
        for broker in BROKERS:
            self._cluster.start_broker(broker)
        anywhere: Mapping[Callable[[int], object], int] = {
            self._register: 2, self._beat: 4, self._shut_down: 1, self._lose_directory: 1, self._fence: 1,
            self._expire: 1, self._wait: 1, self._create_topic: 2, self._unregister: 1, self._balance: 1,
            self._elect_unclean: 1, self._change_feature: 1,
        }  # fmt: skip
        of_partitions: Mapping[Callable[[int, TopicImage, int, PartitionImage], object], int] = {
            self._configure: 1, self._add_partition: 1, self._propose_isr: 4, self._reassign: 1, self._cancel: 1,
            self._elect: 1, self._assign: 2,
        }  # fmt: skip
        self._commands: list[Callable[[int], object]] = [one for one, weight in anywhere.items() for _ in range(weight)]
        self._commands += [self._of_some(one) for one, weight in of_partitions.items() for _ in range(weight)]

    def step(self) -> None:
        """One command, and what the brokers make of it. A refusal is an answer like others."""
        with suppress(KafkaError):
            self._random.choice(self._commands)(self._random.choice(BROKERS))
        for topic in self._cluster.state.image.topics.values():
            for index, partition in topic.partitions.items():
                for broker in partition.replicas:
                    replica = self._replicas.setdefault((topic.id, index, broker), PartitionRegistration())
                    if replica.accepts(partition):
                        replica.apply_image(partition)

    def _of_some(self, command: Callable[[int, TopicImage, int, PartitionImage], object]) -> Callable[[int], object]:
        def run(broker: int) -> None:
            topics = list(self._cluster.state.image.topics.values())
            if topics:
                topic = self._random.choice(topics)
                index = self._random.choice(list(topic.partitions))
                command(broker, topic, index, topic.partitions[index])

        return run

    # -- brokers

    def _register(self, broker: int) -> None:
        known = self._cluster.state.image.brokers.get(broker)
        if self._random.random() < 0.5:
            self._runs[broker] += 1
        epoch = {"previous_epoch": known.epoch} if known is not None and self._random.random() < 0.5 else {}
        self._cluster.register(broker, run=self._runs[broker], dirs=self._random.choice([1, 2]), **epoch)

    def _beat(self, broker: int) -> None:
        self._cluster.beat(broker)

    def _shut_down(self, broker: int) -> None:
        self._cluster.beat(broker, want_shutdown=True)

    def _lose_directory(self, broker: int) -> None:
        self._cluster.beat(broker, offline_dirs=(directory(broker, self._random.randint(0, 1)),))

    def _fence(self, broker: int) -> None:
        known = self._cluster.state.image.brokers.get(broker)
        if known is not None:
            self._cluster.commit(fence_gone(self._cluster.state, known))

    def _expire(self, _broker: int) -> None:
        self._cluster.now += self._random.choice([1, 10])
        self._cluster.commit(expire_one(self._cluster.state, self._cluster.now))

    def _wait(self, _broker: int) -> None:
        self._cluster.now += self._random.random() * 5

    def _unregister(self, broker: int) -> None:
        if self._random.random() < 0.3:
            self._cluster.commit(unregister(self._cluster.state, broker))

    def _assign(self, broker: int, topic: TopicImage, _index: int, _partition: PartitionImage) -> None:
        known = self._cluster.state.image.brokers.get(broker)
        if known is None:
            return
        directories = [directory(broker, 0), directory(broker, 1), LOST_DIR, ZERO_UUID]
        assigned = {
            one: [(topic.id, index) for index in topic.partitions if self._random.random() < 0.5]
            for one in self._random.sample(directories, self._random.randint(1, 3))
        }
        self._cluster.commit(assign(self._cluster.state, NodeId(broker), known.epoch, assigned))

    def _propose_isr(self, broker: int, topic: TopicImage, index: int, partition: PartitionImage) -> None:
        brokers = self._cluster.state.image.brokers
        sender = partition.leader if self._random.random() < 0.9 else NodeId(broker)
        if sender not in brokers:
            return
        isr = [one for one in partition.replicas if one == sender or self._random.random() < 0.7]
        self._random.shuffle(isr)
        proposal = Proposal(
            partition=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple((one, brokers[one].epoch if one in brokers else -1) for one in isr),
            recovery_state=self._random.choice([0, 0, 0, 1]),
        )
        state = self._cluster.state
        self._cluster.commit(alter_partitions(state, sender, brokers[sender].epoch, [(topic.id, [proposal])]))

    # -- administrators

    def _create_topic(self, _broker: int) -> None:
        if len(self._cluster.state.image.topics) < 4:
            name, partitions = f"t{self._random.randint(0, 5)}", self._random.randint(1, 3)
            self._cluster.create_topic(name, partitions=partitions, replicas=self._random.randint(1, 4))

    def _add_partition(self, _broker: int, topic: TopicImage, _index: int, _partition: PartitionImage) -> None:
        if self._random.random() < 0.3:
            more = [NewPartitions(topic.name, len(topic.partitions) + 1)]
            self._cluster.commit(create_partitions(self._cluster.state, more, self._cluster.random))

    def _configure(self, _broker: int, topic: TopicImage, _index: int, _partition: PartitionImage) -> None:
        name, value = self._random.choice(
            [
                ("min.insync.replicas", str(self._random.randint(1, 3))),
                ("unclean.leader.election.enable", self._random.choice(["true", "false"])),
            ]
        )
        record = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
        self._cluster.write([record])

    def _reassign(self, _broker: int, topic: TopicImage, index: int, _partition: PartitionImage) -> None:
        replicas = [NodeId(one) for one in self._random.sample(BROKERS, self._random.randint(1, 4))]
        self._cluster.commit(alter_reassignments(self._cluster.state, [(topic.name, [Target(index, replicas)])]))

    def _cancel(self, _broker: int, topic: TopicImage, index: int, _partition: PartitionImage) -> None:
        self._cluster.commit(alter_reassignments(self._cluster.state, [(topic.name, [Target(index, None)])]))

    def _elect(self, _broker: int, topic: TopicImage, index: int, _partition: PartitionImage) -> None:
        kind = self._random.randint(0, 1)
        self._cluster.commit(elect_leaders(self._cluster.state, kind, [(topic.name, [index])]))

    def _balance(self, _broker: int) -> None:
        self._cluster.commit(balance(self._cluster.state))

    def _elect_unclean(self, _broker: int) -> None:
        self._cluster.commit(elect_unclean(self._cluster.state))

    def _change_feature(self, _broker: int) -> None:
        kind = self._random.choice([Upgrade.UPGRADE, Upgrade.SAFE_DOWNGRADE])
        update = FeatureUpdate("eligible.leader.replicas.version", self._random.randint(0, 1), kind)
        self._cluster.commit(update_features(self._cluster.state, [update]))
