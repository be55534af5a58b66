"""How much clients and administrators do in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from milena.lab.chaos.topics import REPLICAS, Topic
from milena.protocol.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """``topics`` are created first. ``shared``: the topic that groups read. ``pace``: seconds between two bursts of
    records of a partition and a library, on average; ``burst``: the most records of one."""

    topics: Sequence[Topic]
    transactional: tuple[Topic, Topic] | tuple[()] = ()
    """The topics of transactions, which are created, too: the input topic and the output topic of chains."""
    shared: Topic
    pace: float
    burst: int = 1
    read_again: Sequence[TopicPartition]
    """Partitions that readers repeatedly read from the start."""
    made_replicas: Sequence[int] = (REPLICAS,)
    """How many replicas a topic may have that is created during the run."""
    resting: float = 0.0
    """The most seconds that a reader from the start waits before the next partition."""
    groups: bool = True
    """Whether there are other groups than those that read ``shared``."""
    committed: Sequence[TopicPartition]
    """Those for which these groups commit offsets."""
    expires: bool = False
    """Whether offsets of some groups expire."""
    patience: float
    """Seconds after the rebalance time-out in which coordinators must answer."""
    renaming: float = inf
    """Seconds after which groups get other names."""
    moves: bool = False
    """Whether an administrator moves replicas all the time."""
    deletions: bool = False
    """Whether administrators delete records, switch the tier and copying off and on, and make tiered topics."""

    @property
    def keyed(self) -> list[TopicPartition]:
        return [place for topic in self.topics if topic.keyed for place in topic.places]

    @property
    def all_topics(self) -> list[Topic]:
        """The topics to create."""
        return [*self.topics, *self.transactional]

    @property
    def logs(self) -> list[TopicPartition]:
        return [place for topic in self.topics if not topic.keyed for place in topic.places]
