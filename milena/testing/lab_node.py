"""The lab commands of one node of a ``LocalCluster``, with types. docs/lab-commands.md describes each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypedDict, Unpack

from milena.command_line.errors import UserError
from milena.steering.caller import NodeCommands

Described = Mapping[str, Any]
"""A JSON object, as the command returns it."""


class Matching(TypedDict, total=False):
    """On which requests a rule acts: those that match all given arguments. See docs/lab-commands.md: Arguments of
    rules."""

    api: str
    peer: str | int
    client_id: str
    node: int
    listener: str
    topic: str
    partition: int
    group: str
    transactional_id: str
    every: int
    probability: float
    seed: int
    count: int


class Acting(Matching, total=False):
    """The same, and whether the rule acts before a request is handled, or on its response."""

    side: Literal["request", "response"]


class Rule:
    """A fault rule of a node. As a context manager it is released at the end of the block."""

    def __init__(self, node: NodeCommands, number: int) -> None:
        self.number = number
        self._node = node

    def wait(self, hits: int = 1, seconds: float = 30.0) -> Described:
        """Wait until the rule has acted on this many requests; return it as ``rules`` lists it. Raises UserError after
        ``seconds``."""
        found: Described = self._node.call("wait", rule=self.number, hits=hits, seconds=seconds)
        return found

    @property
    def hits(self) -> int:
        """On how many requests the rule has acted."""
        return int(self.wait(hits=0)["hits"])

    def release(self, first: int | None = None) -> int:
        """Let the held requests continue, and remove the rule; with ``first`` only so many, and the rule stays. Return
        how many were held."""
        return int(self._node.call("release", rule=self.number, first=first)["released"])

    def traced(self, *, take: bool = False) -> Sequence[Described]:
        """Return the requests and responses that a ``trace`` has recorded. ``take``: forget them."""
        found: Sequence[Described] = self._node.call("traced", rule=self.number, take=take)
        return found

    def __enter__(self) -> Rule:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except UserError:  # the block has released it, or the node has ended and the rule with it
            return


class LabNode(NodeCommands):
    """The commands of one node. Each raises UserError with the node's error."""

    # -- fault rules

    def hold(self, **rule: Unpack[Acting]) -> Rule:
        """Hold requests, or their responses, until the rule is released."""
        return self._rule("hold", rule)

    def delay(self, ms: float, **rule: Unpack[Acting]) -> Rule:
        """Handle requests, or send their responses, ``ms`` milliseconds later."""
        return self._rule("delay", {"ms": ms, **rule})

    def drop(self, **rule: Unpack[Acting]) -> Rule:
        """Drop requests, or their responses; connections stay open."""
        return self._rule("drop", rule)

    def disconnect(self, **rule: Unpack[Acting]) -> Rule:
        """Close the connections of requests."""
        return self._rule("disconnect", rule)

    def fail(self, error: str | int, **rule: Unpack[Acting]) -> Rule:
        """Answer requests with an error of Kafka, given by name or number."""
        return self._rule("fail", {"error": error, **rule})

    def duplicate(self, **rule: Unpack[Matching]) -> Rule:
        """Handle requests twice; clients get the second response."""
        return self._rule("duplicate", rule)

    def trace(self, **rule: Unpack[Matching]) -> Rule:
        """Record requests and their responses, see ``Rule.traced``."""
        return self._rule("trace", rule)

    def rules(self) -> Sequence[Described]:
        """All rules, with their hits and held requests."""
        found: Sequence[Described] = self.call("rules")
        return found

    def clear(self) -> None:
        """Release all rules."""
        self.call("clear")

    def _rule(self, command: str, arguments: Mapping[str, object]) -> Rule:
        return Rule(self, self.call(command, **arguments)["rule"])

    # -- links, disks, clock, tier

    def cut(self, peer: str | int, direction: Literal["in", "out", "both"] = "both") -> None:
        """Cut the link with a node or client: no data passes, and no connection is closed."""
        self.call("cut", peer=peer, direction=direction)

    def heal(self, peer: str | int | None = None) -> None:
        """Mend the link with a peer; all links without it."""
        self.call("heal", peer=peer)

    def fail_disk(self, path: str) -> None:
        """Let every call on a log directory's disk fail until the node is restarted."""
        self.call("fail_disk", path=path)

    def fill_disk(self, path: str | None = None) -> None:
        """Let a log directory (the last one without ``path``) be full until the node is restarted."""
        self.call("fill_disk", path=path)

    def slow_disk(self, ms: float, path: str | None = None) -> None:
        """Delay each sync in a log directory, or in all; 0 ends it."""
        self.call("slow_disk", ms=ms, path=path)

    def jump_clock(self, ms: int) -> None:
        """Set the node's wall clock ahead, or behind if negative; 0 ends it."""
        self.call("jump_clock", ms=ms)

    def break_tier(self, *, away: bool = False, delay_ms: float = 0, lose: float = 0, odd: str = "") -> None:
        """Let the broker's calls to the tier fail, be slow, lose objects or give wrong answers. Without arguments the
        tier works again."""
        self.call("break_tier", away=away, delay_ms=delay_ms, lose=lose, odd=odd)

    # -- state

    def describe_partition(self, topic: str, partition: int) -> Described:
        """The replica here: role, ISR, offsets, leader epochs."""
        found: Described = self.call("describe_partition", topic=topic, partition=partition)
        return found

    def read_log(
        self, topic: str, partition: int, from_: int = 0, max: int = 1000, *, markers: bool = False
    ) -> Sequence[tuple[int, str | None, int]]:
        """Offset, value and leader epoch of the records in the log here. ``markers``: also those of ended
        transactions."""
        found = self.call("read_log", topic=topic, partition=partition, **{"from": from_}, max=max, markers=markers)
        return [(offset, value, epoch) for offset, value, epoch in found]

    def remote_segments(self, topic: str, partition: int) -> Sequence[Described]:
        """The partition's segments in the tier as this broker knows them."""
        found: Sequence[Described] = self.call("remote_segments", topic=topic, partition=partition)
        return found

    def follower_transitions(self, since: int = 0) -> Sequence[Described]:
        """The changes of followers' states with greater numbers."""
        found: Sequence[Described] = self.call("follower_transitions", since=since)
        return found

    def brokers(self) -> Mapping[str, Described]:
        """At the controller: the registered brokers by id."""
        found: Mapping[str, Described] = self.call("brokers")
        return found

    def partitions(self, topic: str | None = None) -> Mapping[str, Described]:
        """At the controller: the registered partitions by ``TOPIC-PARTITION``."""
        found: Mapping[str, Described] = self.call("partitions", topic=topic)
        return found

    # -- work on logs and tier, now

    def roll(self, topic: str, partition: int) -> int:
        """Roll a new segment, and return its base offset."""
        return int(self.call("roll", topic=topic, partition=partition)["base_offset"])

    def flush(self, topic: str, partition: int) -> int:
        """Flush the log, and return its recovery point."""
        return int(self.call("flush", topic=topic, partition=partition)["recovery_point"])

    def retain(self, topic: str | None = None, partition: int | None = None) -> Mapping[str, int]:
        """Delete expired local segments of all logs, a topic or a partition; return how many by ``TOPIC-PARTITION``."""
        found: Mapping[str, int] = self.call("retain", topic=topic, partition=partition)
        return found

    def compact(self, topic: str, partition: int) -> int | None:
        """Clean the closed segments of a compacted log; return the first offset that is not cleaned."""
        cleaned: int | None = self.call("compact", topic=topic, partition=partition)["cleaned_to"]
        return cleaned

    def copy(self, topic: str, partition: int) -> Mapping[str, int]:
        """On the leader: copy closed segments to the tier. Return the log's bounds in the tier, as the others do."""
        return self._in_tier("copy", topic, partition)

    def expire(self, topic: str, partition: int) -> Mapping[str, int]:
        """On the leader: delete expired segments in the tier."""
        return self._in_tier("expire", topic, partition)

    def clean(self, topic: str, partition: int) -> Mapping[str, int]:
        """On the leader: clean a compacted partition in the tier."""
        return self._in_tier("clean", topic, partition)

    def tiering(self, topic: str, partition: int) -> Mapping[str, int]:
        """Do all work of this replica in the tier; a follower learns of copies."""
        return self._in_tier("tiering", topic, partition)

    def _in_tier(self, command: str, topic: str, partition: int) -> Mapping[str, int]:
        bounds: Mapping[str, int] = self.call(command, topic=topic, partition=partition)
        return bounds

    def busy(self) -> Sequence[str]:
        """What the broker has not finished, as sentences; empty if it is idle."""
        found: Sequence[str] = self.call("busy")["reasons"]
        return found

    def wait_idle(self, seconds: float = 30.0) -> None:
        """Wait until the broker has finished everything. Raises UserError with what is left after ``seconds``.
        ``LocalCluster.wait_idle`` waits for all brokers."""
        self.call("wait_idle", seconds=seconds)
