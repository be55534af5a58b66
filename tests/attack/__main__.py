"""`python -m tests.attack`: mutated frames, resource abuse and hostile peers against a broker and a controller.

--frames 1000000 is a long run, SHORT=1 a short one for CI; --seed N selects other frames. The run prints a table. The
exit code is 1 if a node has ended, an answer is invalid for its API, a node has logged an unexpected error, or another
client had to wait too long.
"""

from __future__ import annotations

import os
import random
import sys
import time
from argparse import ArgumentParser, RawTextHelpFormatter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header, request_header
from milena.protocol.schemas.registry import Role
from milena.testing.local_cluster import LocalCluster, Node
from milena.up import nodes_file
from milena.up.layout import ClusterDir
from tests.attack.abuses import Victim, abuses
from tests.attack.barrage import Barrage
from tests.attack.bystander import Bystander
from tests.attack.hostile import Controller, hostile_peers
from tests.attack.requests import Requests, Target, apis
from tests.attack.tally import Tally, Vital, failures_logged, rows, table
from tests.wire.raw import answers, connected, frame, receive_frame

TOPICS = ("attacked-0", "attacked-1")
SLOW = 15.0
"""The limit in seconds for the wait of another client; the machine may be busy."""


class NodeEnded(Exception):
    """The attacked process has ended, or does not answer any client."""


class Attack:
    """One run against a cluster."""

    def __init__(self, cluster: LocalCluster, seed: int, scale: float) -> None:
        self._cluster = cluster
        self._seed = seed
        self._scale = scale
        self.tallies: list[Tally] = []
        self.faults: list[str] = []
        self.waits: list[tuple[str, float]] = []
        self._before = {node.id: Vital.of(node.pid or 0) for node in cluster.nodes.values()}
        self._pids = {node.id: node.pid for node in cluster.nodes.values()}

    def barrage(self, node: Node, role: Role, frames: int) -> None:
        rnd = random.Random(f"{self._seed} {role.name}")
        address = self._address(node)
        host, _, port = address.rpartition(":")

        def attack(tally: Tally) -> None:
            requests = Requests(target(self._cluster), rnd)
            check = lambda: self._check(node)  # noqa: E731
            Barrage((host, int(port)), apis(role), requests, rnd, tally, check).run(frames)

        self._run(f"{role.name.lower()}: mutated frames", node, attack)

    def abuse(self, node: Node) -> None:
        controller = "controller" in node.roles
        metrics = None if controller else ("127.0.0.1", self._metrics_port(node))
        victim = Victim(self._address(node), metrics, node.pid or 0, self._scale)
        for name, abuse in abuses(controller=controller):
            self._run(
                f"{node.roles[0]}: {name}",
                node,
                lambda tally, abuse=abuse: abuse(victim, tally),  # type: ignore[misc]
            )

    def hostile(self, seconds: float) -> None:
        node = self._cluster.controller
        controller = Controller(self._address(node), target(self._cluster).cluster_id)
        rnd = random.Random(self._seed)
        self._run("hostile peers", node, lambda tally: hostile_peers(controller, tally, rnd, seconds))
        self._check(self._cluster.brokers[0])

    def finish(self) -> str:
        for node in self._cluster.nodes.values():
            log = Path(ClusterDir(self._cluster.directory).log(f"{node.roles[0]}-{node.id}"))
            self.faults += [f"{node.roles[0]}-{node.id} logged: {line}" for line in failures_logged(log)[:20]]
        vitals = [("node", "before", "after")]
        for node in self._cluster.nodes.values():
            after = "ended" if node.pid is None else str(Vital.of(node.pid))
            vitals.append((f"{node.roles[0]}-{node.id}", str(self._before[node.id]), after))
        waits = [("attack", "another client waited at most")]
        waits += [(name, f"{seconds * 1000:.0f} ms") for name, seconds in self.waits]
        return "\n\n".join((table(rows(self.tallies)), table(waits), table(vitals)))

    def _run(self, name: str, node: Node, attack: Callable[[Tally], None]) -> None:
        tally = Tally(name)
        self.tallies.append(tally)
        begun = time.monotonic()
        with Bystander(self._address(node)) as bystander:
            attack(tally)
        if bystander.failure is not None:
            self.faults.append(f"{name}: another client was cut off {bystander.failure}")
        if bystander.longest > SLOW:
            self.faults.append(f"{name}: another client waited for {bystander.longest:.1f} s")
        self.waits.append((name, bystander.longest))
        self.faults += [f"{name}: {text}" for text in tally.unreadable[:20]]
        self._check(node)
        print(f"{name}: {tally.sent} sent, {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)

    def _check(self, node: Node) -> None:
        if self._cluster.nodes[node.id].pid != self._pids[node.id] or not answers(self._address(node)):
            raise NodeEnded(f"{node.roles[0]}-{node.id} has ended:\n{self._cluster.log(node.id)[-3000:]}")

    def _address(self, node: Node) -> str:
        return next(iter(node.listeners.values()))

    def _metrics_port(self, node: Node) -> int:
        entries = nodes_file.read(ClusterDir(self._cluster.directory).nodes)
        address: str = next(entry["metrics"] for entry in entries if entry["id"] == node.id)
        return int(address.rpartition(":")[2])


def target(cluster: LocalCluster) -> Target:
    """The names and ids of the cluster that requests can use, from a Metadata request."""
    with connected(cluster.bootstrap) as plain:
        body = messages.encode_request(ApiKey.METADATA, 12, topics=None)
        plain.sendall(frame(request_header(ApiKey.METADATA, 12, 1, "attack") + body))
        _, answer = parse_response_header(ApiKey.METADATA, 12, receive_frame(plain))
    view = messages.decode_response(ApiKey.METADATA, 12, answer)
    ids = tuple(topic.topic_id for topic in view.topics if topic.topic_id is not None)
    return Target(view.cluster_id, TOPICS, ids or (UUID(int=1),), ("group-0", "group-1"))


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(prog="python -m tests.attack", description=__doc__, formatter_class=RawTextHelpFormatter)
    short = bool(os.environ.get("SHORT"))
    parser.add_argument("--frames", type=int, default=20_000 if short else 200_000, help="mutated frames in all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    scale = 0.1 if short else 1.0
    with TemporaryDirectory(prefix="attack-") as folder:
        topics = [f"{name}:3:1" for name in TOPICS]
        with LocalCluster.start(folder, topics=topics, options=["--metrics", "0"]) as cluster:
            attack = Attack(cluster, options.seed, scale)
            try:
                attack.hostile(1.5 if short else 5.0)
                attack.abuse(cluster.brokers[0])
                attack.abuse(cluster.controller)
                attack.barrage(cluster.brokers[0], Role.BROKER, options.frames * 2 // 3)
                attack.barrage(cluster.controller, Role.CONTROLLER, options.frames // 3)
            except (NodeEnded, ConnectionError) as error:
                attack.faults.append(str(error))
            print(attack.finish())
    for fault in attack.faults:
        print(f"fault: {fault}")
    print(f"{'failed' if attack.faults else 'passed'}: {len(attack.faults)} faults")
    return 1 if attack.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
