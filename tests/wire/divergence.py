"""Scenario 5 of KIP-405 on processes, for consumers that committed offset 3 in the leader epoch of the lost log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from milena.steering.nodes import SteeredNode
from milena.up.layout import ClusterDir
from tests.wire.command import milena

LAST_STEP = "7"
"""The step of kip405_5 after which A leads in LE-2, B follows, and both serve A's lineage."""
POSITION = 3
LINEAGE = {3: "msg 3", 4: "msg 4", 5: "msg 7", 6: "msg 8"}
"""A's records from the position on. In LE-1, in which the group has read, offsets 3 and 4 had messages 5 and 6."""
A = 1


@dataclass(frozen=True)
class Divergence:
    """The cluster of the scenario. ``epochs``: the document's leader epochs and those of the run."""

    bootstrap: str
    directory: str
    epochs: dict[int, int]

    def commit(self, group: str) -> None:
        """Commit (3, LE-1) for a group without members."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            position = TopicPartition("t", 0, POSITION, leader_epoch=self.epochs[1])
            consumer.commit(offsets=[position], asynchronous=False)
        finally:
            consumer.close()

    def traced(self, api: str, client: str) -> Trace:
        """Record the requests of a client at the leader, from now on."""
        return Trace(self, self.lab("trace", api=api, peer=client)["rule"])

    def lab(self, command: str, **arguments: Any) -> Any:
        return SteeredNode(ClusterDir(self.directory), A).lab_commands.call(command, **arguments)


@dataclass(frozen=True)
class Trace:
    """Recorded requests."""

    of: Divergence
    rule: int

    def fields(self, name: str) -> list[int]:
        """A field of the requests about the partition, as it is."""
        return [value for one in self.of.lab("traced", rule=self.rule) for value in _deep(one["request"], name)]


def _deep(found: Any, name: str) -> list[int]:
    if isinstance(found, dict):
        own = [found[name]] if name in found else []
        return own + [value for one in found.values() for value in _deep(one, name)]
    return [value for one in found for value in _deep(one, name)] if isinstance(found, list) else []


@contextmanager
def divergence(folder: Path) -> Iterator[Divergence]:
    """Play the scenario up to the step, and leave its cluster running meanwhile."""
    where = ("--dir", str(folder))
    run = milena("scenario", "run", "kip405_5", "--on", "processes", "--until", LAST_STEP, "--keep", "--json", *where)
    try:
        (found,) = json.loads(run.out)
        assert found["outcome"] == "passed", found
        epochs = {int(document): real for document, real in found["run"]["epochs"].items()}
        yield Divergence(found["bootstrap"], str(folder), {0: 0, 1: 1, 2: 2} | epochs)
    finally:
        milena("down", *where)
