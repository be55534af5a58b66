"""The cluster in a directory, or nodes of a lab without `milena up`: its state by lab commands."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from milena.client.cluster import Cluster
from milena.console.groups import read_groups
from milena.console.model import NO_TRANSACTIONS, Json, Key, Model
from milena.console.node_link import CommandError, NodeAway, NodeLink, linked
from milena.console.places import Watched
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import KafkaError
from milena.up import nodes_file, processes
from milena.up.layout import ClusterDir

if TYPE_CHECKING:
    from milena.up.nodes_file import Entry

ANSWER_SECONDS: Final = 5.0
"""The limit of one answer."""
INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""The topics that Kafka calls internal."""
MOST_TRANSITIONS: Final = 200
"""Changes of followers' states of one round that are events of their own."""
MOST_TRANSACTION_EVENTS: Final = 20
"""The same for transitions of transactions, so that a loaded cluster leaves room for other events."""
LONE_LIMITS: Final = (
    "The nodes have no `milena up`: their processes cannot be controlled, and there are no resets and snapshots"
)
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class LabNode:
    """A node with a socket for lab commands."""

    def __init__(self, entry: Entry, socket: str) -> None:
        self.entry = entry
        self.socket = socket
        self.answers: bool | None = None
        """Whether the node has answered the last time; None if it was not asked yet."""

    @property
    def name(self) -> str:
        return nodes_file.name_of(self.entry)

    @property
    def pid(self) -> int | None:
        """Its process; None if it is down."""
        return self.entry["pid"] if self.state != "down" else None

    @property
    def state(self) -> str:
        """``up``, ``starting``, ``paused`` or ``down``."""
        pid = self.entry["pid"]
        if pid is None or not processes.runs(pid):
            return "down"
        if processes.is_paused(pid):
            return "paused"
        return "up" if self.entry.get("ready", True) else "starting"

    def is_answering(self) -> bool:
        return self.state in ("up", "starting")

    @asynccontextmanager
    async def session(self, model: Model) -> AsyncIterator[LabSession]:
        try:
            async with linked(self.socket, self.name) as link:
                session = LabSession(self, link, model)
                try:
                    yield session
                finally:
                    await session.end()
        except NodeAway:
            self.answers = False
            raise


class LoneNode(LabNode):
    """A node without `milena up`, as in a container. Its process id means nothing here, so that it counts as down if it
    does not answer."""

    @property
    def pid(self) -> None:
        return None

    @property
    def state(self) -> str:
        return {None: "starting", True: "up", False: "down"}[self.answers]

    def is_answering(self) -> bool:
        return True


class LabSession:
    """Asks one node. The node remembers its answers under the session's name, and returns changes."""

    def __init__(self, node: LabNode, link: NodeLink, model: Model) -> None:
        self._node = node
        self._link = link
        self._model = model
        self._name = secrets.token_urlsafe(6)
        self._broken = False
        self._transitions: int | None = None
        """The number of the last change of a follower's state that was seen."""
        self._transactions: int | None = None
        """The ``version`` in the last answer to the lab command ``transactions``."""
        self._last_transition: int | None = None

    async def round(self) -> None:
        try:
            for role in self._node.entry["roles"]:
                await self._read_role(role)
            await self._read_troubles()
        except NodeAway:
            self._broken = True
            raise
        self._node.answers = True

    async def end(self) -> None:
        """Let the node forget the session."""
        if self._broken:
            return
        for role in self._node.entry["roles"]:
            try:
                await self._link.call("observe", 1.0, session=self._name, role=role, end=True)
            except (NodeAway, CommandError):
                return

    async def _read_role(self, role: str) -> None:
        seen: set[Key] = set()
        answer: Json = {}
        position: int | None = 0
        while position is not None:
            asked = {"session": self._name, "role": role, "from": position}
            answer = await self._link.call("observe", ANSWER_SECONDS, **asked)
            if role == "broker":
                self._take_replicas(answer, seen)
                if answer["next"] is None:
                    await self._read_transitions(answer["transitions"])
                    await self._read_transactions(answer["transactions"], first=answer["first"])
            else:
                self._take_registrations(answer, seen)
            position = answer["next"]
        if answer["first"]:  # also if the node has forgotten the session, as after the restore of a snapshot
            self._forget_others(role, seen)

    def _take_replicas(self, answer: Mapping[str, Any], seen: set[Key]) -> None:
        broker = str(self._node.entry["id"])
        for topic, number, row in answer["rows"]:
            seen.add((topic, number))
            self._model.set_replica((topic, number), broker, row)
        for topic, number in answer["gone"]:
            self._model.remove_replica((topic, number), broker)
        if answer["next"] is None:
            counted = {key: answer[key] for key in ("hosts", "leads", "metadata_offset")}
            self._model.update_node(self._node.name, **counted)

    async def _read_transitions(self, last: int) -> None:
        """Enter the changes of followers' states since the last round into the feed, if they are few."""
        known, self._transitions = self._transitions, last
        if known is None or last <= known:
            return
        broker = str(self._node.entry["id"])
        if last - known > MOST_TRANSITIONS:
            text = f"{self._node.name}: {last - known} changes of followers' states"
            self._model.feed.add("follower_state", text, node=self._node.name)
            return
        for change in await self._link.call("follower_transitions", ANSWER_SECONDS, since=known):
            self._model.feed.follower_changed(broker, change)

    async def _read_transactions(self, version: int, *, first: bool) -> None:
        """Enter what the broker coordinates into the model if it has changed, and the transitions into the feed.
        ``first``: the node has just been asked for the first time, or begins again to count versions."""
        if version == self._transactions and not first:
            return
        known = None if first else self._last_transition
        answer = await self._link.call("transactions", ANSWER_SECONDS, since=known)
        self._transactions, self._last_transition = answer["version"], answer["last"]
        coordinated = {key: answer[key] for key in ("counts", "total", "loading", "ids")}
        self._model.set_transactions(self._node.name, coordinated)
        if known is not None:
            self._note_transitions(answer["transitions"], answer["last"] - known)

    def _note_transitions(self, changes: Sequence[Json], count: int) -> None:
        """``count``: how many there were; the node may have dropped some."""
        if count > MOST_TRANSACTION_EVENTS:
            self._model.feed.transactions_changed(self._node.name, changes, count - len(changes))
            return
        for change in changes:
            self._model.feed.transaction_changed(self._node.name, change)

    def _take_registrations(self, answer: Mapping[str, Any], seen: set[Key]) -> None:
        for name, (topic_id, count) in answer["topics"].items():
            self._model.set_topic(name, topic_id, count, internal=name in INTERNAL)
        for topic, number, row in answer["rows"]:
            seen.add((topic, number))
            self._model.set_registration((topic, number), row)
        for topic, number in answer["gone"]:
            self._model.remove_partition((topic, number))
        for broker, (epoch, fenced, shutting_down, rack) in answer["brokers"].items():
            registered = {"epoch": epoch, "fenced": fenced, "shutting_down": shutting_down, "rack": rack}
            self._model.update_node(f"broker-{broker}", **registered)
        self._model.update_node(self._node.name, metadata_offset=answer["metadata_offset"])

    def _forget_others(self, role: str, seen: set[Key]) -> None:
        """After the first round of a session: remove what the node had before, such as before a restart."""
        if role == "broker":
            broker = str(self._node.entry["id"])
            for key in self._model.replicas_of(broker):
                if key not in seen:
                    self._model.remove_replica(key, broker)
        else:
            for key in [key for key in self._model.registered if key not in seen]:
                self._model.remove_partition(key)
            self._model.feed.starting = False

    async def _read_troubles(self) -> None:
        links = await self._link.call("links", ANSWER_SECONDS)
        cut = [{"peer": link["peer"], "direction": link["direction"]} for link in links]
        troubles = await self._link.call("troubles", ANSWER_SECONDS)
        troubles.pop("wall_ms", None)  # it changes with every call
        faults = await self._link.call("faults", ANSWER_SECONDS)
        self._model.update_node(self._node.name, links=cut, troubles=troubles, faults=faults)
        self._model.set_rules(self._node.name, await self._link.call("rules", ANSWER_SECONDS))


class LabPlace:
    """A cluster of `milena up --lab`, or nodes of a lab without `milena up`."""

    def __init__(self, folders: Sequence[ClusterDir], client: Cluster, kind: type[LabNode] = LabNode) -> None:
        """``folders``: those with nodes.json and the nodes' sockets."""
        self._folders = folders
        self._kind = kind
        self.client = client
        self._known: dict[str, LabNode] = {}

    def nodes(self) -> Mapping[str, LabNode]:
        for folder in self._folders:
            for entry in nodes_file.read(folder.nodes):
                name = nodes_file.name_of(entry)
                known = self._known.setdefault(name, self._kind(entry, folder.socket(name)))
                known.entry = entry
        return self._known

    def describe(self, watched: Watched, model: Model) -> None:
        node = self._known[watched.name]
        model.set_node(node.name, described(node, model.nodes.get(node.name)))
        if node.state == "down":
            model.set_rules(node.name, [])
            model.set_transactions(node.name, NO_TRANSACTIONS)

    async def read_groups(self, model: Model) -> None:
        if not model.cluster.get("id"):
            with suppress(KafkaError, ChannelError):
                model.cluster["id"] = (await self.client.metadata()).cluster_id or ""
        await read_groups(self.client, model)


def described(node: LabNode, former: Json | None) -> Json:
    """Return a node's description: what its entry and its process say, and what it has said itself before."""
    entry, state = node.entry, node.state
    answered = former or {
        "epoch": None, "fenced": None, "shutting_down": None, "rack": None, "metadata_offset": None, "leads": 0,
        "hosts": 0, "poll_ms": None,
    }  # fmt: skip
    if former is None or state == "down":  # faults end with the process
        answered = answered | {"links": [], "faults": [], "troubles": None}
    return answered | {
        "id": entry["id"],
        "role": ",".join(entry["roles"]),
        "state": state,
        "pid": node.pid,
        "address": next(iter(entry["listeners"].values()), ""),
        "log_dirs": entry["log.dirs"],
        "memory": None if node.pid is None else _memory(node.pid),
    }


def _memory(pid: int) -> int | None:
    """Return the resident memory of a process in whole MiB, as bytes; None if the system does not say."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return (int(file.read().split()[1]) * PAGE_BYTES) >> 20 << 20
    except (OSError, ValueError, IndexError):
        return None


def broker_addresses(cluster: ClusterDir) -> Iterator[tuple[str, int]]:
    """Yield the addresses of the brokers that nodes.json lists."""
    for entry in nodes_file.read(cluster.nodes):
        if "broker" in entry["roles"]:
            for address in entry["listeners"].values():
                host, _, port = address.rpartition(":")
                yield host.strip("[]"), int(port)
