"""Any cluster, Apache Kafka too: its state by Kafka's protocol alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from milena.client.cluster import Cluster, ClusterView, PartitionInfo
from milena.client.offsets import EARLIEST, EARLIEST_LOCAL, LATEST
from milena.client.replicas import HostedReplica, describe_log_dirs, list_brokers, list_reassignments
from milena.client.transactions import producers_of
from milena.console.groups import read_groups
from milena.console.lab_place import INTERNAL
from milena.console.model import NO_TRANSACTIONS, Json, Key, Model, Row
from milena.console.node_link import NodeAway
from milena.console.places import Watched
from milena.console.transactional_ids import open_ids
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError
from milena.protocol.uuids import to_text

if TYPE_CHECKING:
    from milena.protocol.apis import ListOffsetsResponse

LIMITS: Final = (
    "Only Kafka's protocol is available: without leader epochs of logs, states of followers, pending ISR changes, "
    "segments in the tier, transactional ids without a transaction, processes, fault rules and lab commands"
)
UNKNOWN: Final = -1
MOST_OPEN: Final = 100
"""Partitions whose open transactions are asked for."""
Offsets = dict[Key, int]


class KafkaPlace:
    """A cluster that is reached through bootstrap servers."""

    def __init__(self, client: Cluster) -> None:
        self.client = client
        self._source = KafkaSource(client)

    def nodes(self) -> Mapping[str, Watched]:
        return {self._source.name: self._source}

    def describe(self, watched: Watched, model: Model) -> None:
        """Nothing is known without asking."""

    async def read_groups(self, model: Model) -> None:
        await read_groups(self.client, model)


class KafkaSource:
    """The brokers of the cluster, which are asked together."""

    name = "cluster"

    def __init__(self, client: Cluster) -> None:
        self._client = client

    def is_answering(self) -> bool:
        return True

    @asynccontextmanager
    async def session(self, model: Model) -> AsyncIterator[KafkaSession]:
        yield KafkaSession(self._client, model)


class KafkaSession:
    """Asks for everything each time; the model finds what has changed."""

    def __init__(self, client: Cluster, model: Model) -> None:
        self._client = client
        self._model = model

    async def round(self) -> None:
        try:
            await self._round()
        except ChannelError as error:
            for name in list(self._model.nodes):
                self._model.update_node(name, state="down")
            raise NodeAway(str(error)) from error
        except KafkaError as error:
            raise NodeAway(str(error)) from error
        self._model.feed.starting = False

    async def _round(self) -> None:
        view = await self._client.metadata()
        self._model.cluster["id"] = view.cluster_id or ""
        await self._take_brokers(view)
        moving = await list_reassignments(self._client)
        registered: dict[Key, Row] = {}
        for topic in view.topics.values():
            topic_id = "" if topic.id is None else to_text(topic.id)
            self._model.set_topic(topic.name, topic_id, len(topic.partitions), internal=topic.name in INTERNAL)
            for number, partition in topic.partitions.items():
                change = moving.get((topic.name, number))
                adding, removing = ([], []) if change is None else (list(change.adding), list(change.removing))
                registered[topic.name, number] = row = _registration(partition, adding, removing)
                self._model.set_registration((topic.name, number), row)
        for key in [key for key in self._model.registered if key not in registered]:
            self._model.remove_partition(key)
        await self._take_replicas(view, registered)
        await self._take_transactions()

    async def _take_transactions(self) -> None:
        """Enter the ids whose transaction has not ended. A large cluster has too many ids to list all in each
        round."""
        try:
            coordinated = {f"broker-{broker}": ids for broker, ids in (await open_ids(self._client)).items()}
        except KafkaError:  # a coordinator is loading, or an older broker
            return
        for node in [*coordinated, *(self._model.transactions.keys() - coordinated)]:
            self._model.set_transactions(node, coordinated.get(node, NO_TRANSACTIONS))

    async def _take_brokers(self, view: ClusterView) -> None:
        """Brokers that metadata does not name are fenced, or have ended."""
        try:
            fenced = {broker.id: broker.fenced for broker in await list_brokers(self._client)}
        except KafkaError:  # an older broker
            fenced = dict.fromkeys(view.brokers, False)
        for number, broker in view.brokers.items():
            fenced.setdefault(number, False)
            name, address = f"broker-{number}", f"{broker.host}:{broker.port}"
            counted = {
                key: value for key, value in self._model.nodes.get(name, {}).items() if key in ("hosts", "leads")
            }
            described = _broker(number, address, broker.rack, fenced=fenced[number])
            self._model.set_node(name, described | counted)
        for name, node in list(self._model.nodes.items()):
            if node["id"] not in view.brokers:
                self._model.set_node(name, {**node, "state": "down", "fenced": True})

    async def _take_replicas(self, view: ClusterView, registered: Mapping[Key, Row]) -> None:
        leaders: dict[int, list[Key]] = defaultdict(list)
        for key, row in registered.items():
            if row[0] in view.brokers:
                leaders[row[0]].append(key)
        starts, locals_, ends, stable = Offsets(), Offsets(), Offsets(), Offsets()
        for broker, keys in leaders.items():
            for found, at in ((starts, EARLIEST), (locals_, EARLIEST_LOCAL), (ends, LATEST)):
                found |= await self._offsets(broker, keys, at)
            stable |= await self._offsets(broker, keys, LATEST, committed=True)
        opened = await self._open_transactions([key for key, end in ends.items() if stable.get(key, end) < end])
        for broker in view.brokers:
            hosted: dict[Key, HostedReplica] = {}
            for directory in await describe_log_dirs(self._client, broker):
                hosted |= {key: one for key, one in directory.replicas.items() if not one.future}
            for key, replica in hosted.items():
                if key in registered:
                    leads = registered[key][0] == broker
                    bounds = [found.get(key, UNKNOWN) for found in (starts, locals_, ends, stable)]
                    row = _replica(bounds, replica, registered[key][1], opened.get(key, []), leads=leads)
                    self._model.set_replica(key, str(broker), row)
            self._model.update_node(f"broker-{broker}", hosts=len(hosted), leads=len(leaders[broker]))
            for key in self._model.replicas_of(str(broker)):
                if key not in hosted:
                    self._model.remove_replica(key, str(broker))

    async def _open_transactions(self, keys: list[Key]) -> dict[Key, Row]:
        """Return producer id, first offset and time of the last batch of the oldest transaction in each partition."""
        found: dict[Key, Row] = {}
        try:
            producers = await producers_of(self._client, keys[:MOST_OPEN]) if keys else {}
        except KafkaError:  # a leader has changed, or an older broker
            return {}
        for key, known in producers.items():
            begun = [(one.start_offset, one) for one in known if one.start_offset is not None]
            if begun:
                start, producer = min(begun, key=lambda one: one[0])
                found[key] = [producer.producer_id, start, producer.last_timestamp]
        return found

    async def _offsets(self, broker: int, keys: list[Key], at: int, *, committed: bool = False) -> Offsets:
        """Return the offsets of these partitions for one of the special times, as their leader knows them; nothing for
        those that it does not lead any more, and for a time that it does not know. ``committed``: the last stable
        offset is the latest one."""
        topics: dict[str, list[Json]] = defaultdict(list)
        for topic, number in keys:
            topics[topic].append({"partition_index": number, "current_leader_epoch": UNKNOWN, "timestamp": at})
        channel = self._client.to_broker(broker)
        await channel.connect()
        version = channel.choose(ApiKey.LIST_OFFSETS)
        if at == EARLIEST_LOCAL and version < 8:
            return {}
        response: ListOffsetsResponse = await channel.request(
            ApiKey.LIST_OFFSETS,
            version,
            replica_id=-1,
            isolation_level=int(committed),
            topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        )
        return {
            (topic.name, int(one.partition_index)): int(one.offset)
            for topic in response.topics
            for one in topic.partitions
            if not one.error_code
        }


def _registration(partition: PartitionInfo, adding: list[int], removing: list[int]) -> Row:
    replicas, isr = list(partition.replicas), list(partition.isr)
    return [partition.leader, partition.leader_epoch, UNKNOWN, replicas, isr, adding, removing, [], 0]


def _replica(bounds: Sequence[int], replica: HostedReplica, leader_epoch: int, opened: Row, *, leads: bool) -> Row:
    """Kafka's protocol has no log end offset of a replica: the result is the high watermark minus the replica's lag."""
    start, local, high, stable = bounds
    if leads:
        return ["L", start, local, high, stable, high, UNKNOWN, replica.size, [], leader_epoch, "", [], [], opened]
    end = UNKNOWN if high < 0 else high - max(replica.lag, 0)
    return ["F", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, end, UNKNOWN, replica.size, [], leader_epoch, "", [], [], []]


def _broker(number: int, address: str, rack: str | None, *, fenced: bool) -> Json:
    return {
        "id": number, "role": "broker", "state": "up", "pid": None, "address": address, "epoch": None, "rack": rack,
        "fenced": fenced, "shutting_down": None, "log_dirs": [], "metadata_offset": None, "leads": 0, "hosts": 0,
        "memory": None, "links": [], "troubles": None, "faults": [], "poll_ms": None,
    }  # fmt: skip
