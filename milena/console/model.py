"""The state of a cluster as the server knows it, and the changes of it that were not published yet.

``docs/http.md`` describes the state, the positions in the rows, and the deltas. All methods are synchronous.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from milena.console.feed import Feed

Json: TypeAlias = dict[str, Any]
Row: TypeAlias = list[Any]
Key: TypeAlias = tuple[str, int]

KEPT_DELTAS: Final = 64
KEPT_BYTES: Final = 4 << 20
"""The newest deltas, for clients that connect again."""
NO_TRANSACTIONS: Final[Json] = {"counts": {}, "total": 0, "loading": 0, "ids": {}}
"""Of a broker that coordinates no transactional id. ``total`` is None if it is unknown."""
REPLICAS: Final = 8
"""The position of the replicas in a partition of the full state. A delta has them apart."""


def encoded(value: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return JSON. A command line or a client may have given a name with a lone surrogate, which UTF-8 does not have:
    it is escaped then."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value).encode()


class Delta:
    """One published change: its number, and its JSON."""

    def __init__(self, number: int, data: bytes) -> None:
        self.number = number
        self.data = data


class Changed:
    """What of one partition has changed."""

    def __init__(self) -> None:
        self.registration = False
        self.brokers: set[str] = set()
        """The brokers whose replicas have changed."""


class Model:
    """The state of one cluster. ``time_ms`` returns the wall clock."""

    def __init__(self, time_ms: Callable[[], int]) -> None:
        self.stream: Final = secrets.token_urlsafe(6)
        """The name of this sequence of deltas."""
        self.cluster: Json = {}
        self.interval_ms = 0
        self.number = 0
        """The number of the last delta."""
        self.nodes: dict[str, Json] = {}
        self.topics: dict[str, Json] = {}
        self.groups: dict[str, Json] = {}
        self.rules: dict[str, list[Json]] = {}
        self.transactions: dict[str, Json] = {}
        """What each coordinator has: ``counts``, ``total``, ``loading`` and ``ids``, as docs/http.md describes it."""
        self.registered: dict[Key, Row] = {}
        self.replicas: dict[Key, dict[str, Row]] = {}
        self.feed = Feed(time_ms)
        self._time_ms = time_ms
        self._pending: Json = {}
        self._rows: dict[Key, Changed] = {}
        self._counts: Counter[str] = Counter()
        """Registered partitions by topic."""
        self._deltas: deque[Delta] = deque()
        self._kept_bytes = 0

    # -- changes

    def set_node(self, name: str, node: Json | None) -> None:
        """A node is as described, or gone."""
        before = self.nodes.get(name)
        if before == node:
            return
        if node is None:
            del self.nodes[name]
        else:
            self.nodes[name] = node
            self.feed.node_changed(name, before, node)
        self._pending.setdefault("nodes", {})[name] = node

    def update_node(self, name: str, **fields: object) -> None:
        """Set some fields of a known node."""
        if name in self.nodes:
            self.set_node(name, self.nodes[name] | fields)

    def set_topic(self, name: str, topic_id: str, count: int, *, internal: bool) -> None:
        """A topic has this id and number of partitions."""
        before = self.topics.get(name)
        topic = {"id": topic_id, "internal": internal, "count": count}
        if before == topic:
            return
        self.topics[name] = topic
        self.feed.topic_changed(name, before, topic)
        self._pending.setdefault("topics", {})[name] = topic
        if before is not None and before["id"] != topic["id"]:
            self._resend(name)

    def _resend(self, topic: str) -> None:
        """Publish all partitions of a topic that was created again: a client drops those of the former one, and rows
        that are the same as before would not be sent."""
        for key in [key for key in self.registered if key[0] == topic]:
            changed = self._changed(key)
            changed.registration = True
            changed.brokers |= self.replicas.get(key, {}).keys()

    def set_registration(self, key: Key, row: Row) -> None:
        """The controller has this registration of a partition."""
        before = self.registered.get(key)
        if before == row:
            return
        self.registered[key] = row
        self.feed.registration_changed(key, before, row)
        if before is None:
            self._counts[key[0]] += 1
        self._changed(key).registration = True

    def remove_partition(self, key: Key) -> None:
        """The controller no longer has the partition; without partitions the topic is gone."""
        if self.registered.pop(key, None) is None:
            return
        self.replicas.pop(key, None)
        self._rows.pop(key, None)
        self._counts[key[0]] -= 1
        if not self._counts[key[0]]:
            del self._counts[key[0]], self.topics[key[0]]
            self._pending.setdefault("topics", {})[key[0]] = None
            self.feed.topic_gone(key[0])

    def set_replica(self, key: Key, broker: str, row: Row) -> None:
        """A broker has this replica."""
        replicas = self.replicas.setdefault(key, {})
        before = replicas.get(broker)
        if before == row:
            return
        replicas[broker] = row
        self.feed.replica_changed(key, broker, before, row)
        self._changed(key).brokers.add(broker)

    def remove_replica(self, key: Key, broker: str) -> None:
        """A broker no longer hosts the partition."""
        replicas = self.replicas.get(key)
        if replicas is not None and replicas.pop(broker, None) is not None:
            if not replicas:
                del self.replicas[key]
            self._changed(key).brokers.add(broker)

    def replicas_of(self, broker: str) -> list[Key]:
        """Return the partitions of which a broker has a replica."""
        return [key for key, replicas in self.replicas.items() if broker in replicas]

    def set_group(self, name: str, group: Json | None) -> None:
        """A group is as described, or gone."""
        before = self.groups.get(name)
        if before == group:
            return
        if group is None:
            del self.groups[name]
        else:
            self.groups[name] = group
        self.feed.group_changed(name, before, group)
        self._pending.setdefault("groups", {})[name] = group

    def set_rules(self, node: str, rules: list[Json]) -> None:
        """A node has these rules."""
        before = self.rules.get(node, [])
        if before == rules:
            return
        if rules:
            self.rules[node] = rules
        else:
            del self.rules[node]
        self.feed.rules_changed(node, before, rules)
        self._pending.setdefault("rules", {})[node] = rules

    def set_transactions(self, node: str, coordinated: Json) -> None:
        """A broker coordinates these transactional ids."""
        before = self.transactions.get(node, NO_TRANSACTIONS)
        if before == coordinated:
            return
        if coordinated == NO_TRANSACTIONS:
            del self.transactions[node]
        else:
            self.transactions[node] = coordinated
        former, ids = before["ids"], coordinated["ids"]
        changed = dict.fromkeys(name for name in former if name not in ids)
        changed |= {name: row for name, row in ids.items() if former.get(name) != row}
        pending = self._pending.setdefault("transactions", {})
        known = pending.get(node, NO_TRANSACTIONS)["ids"]
        pending[node] = {**coordinated, "ids": {**known, **changed}}

    def _changed(self, key: Key) -> Changed:
        return self._rows.setdefault(key, Changed())

    def _numbers(self, topic: str) -> range:
        return range(self.topics[topic]["count"])

    # -- publication

    def publish(self) -> Delta | None:
        """Return the next delta, or None if nothing has changed."""
        events = self.feed.take()
        if not (self._pending or self._rows or events):
            return None
        self.number += 1
        delta: Json = {"seq": self.number, "time_ms": self._time_ms(), "interval_ms": self.interval_ms, **self._pending}
        if self._rows:
            delta["parts"] = [self._part(key, changed) for key, changed in self._rows.items()]
        if events:
            delta["events"] = events
        self._pending, self._rows = {}, {}
        published = Delta(self.number, encoded(delta))
        self._keep(published)
        return published

    def _part(self, key: Key, changed: Changed) -> Row:
        replicas = self.replicas.get(key, {})
        row = self.registered[key] if changed.registration else None
        return [*key, row, {broker: replicas.get(broker) for broker in changed.brokers}]

    def _keep(self, delta: Delta) -> None:
        self._deltas.append(delta)
        self._kept_bytes += len(delta.data)
        while len(self._deltas) > KEPT_DELTAS or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._deltas.popleft().data)

    def since(self, stream: str, number: int) -> Sequence[Delta] | None:
        """Return the deltas after ``number``; None if some of them are not known any more."""
        if stream != self.stream or number > self.number:
            return None
        if number < self.number and (not self._deltas or self._deltas[0].number > number + 1):
            return None
        return [delta for delta in self._deltas if delta.number > number]

    def full(self) -> bytes:
        """Return the state with everything that is published. Call ``publish`` before, so that nothing is missing."""
        return encoded(
            {
                "seq": self.number,
                "stream": self.stream,
                "time_ms": self._time_ms(),
                "interval_ms": self.interval_ms,
                "cluster": self.cluster,
                "nodes": self.nodes,
                "topics": {name: self._topic(name, topic) for name, topic in self.topics.items()},
                "groups": self.groups,
                "rules": self.rules,
                "transactions": self.transactions,
                "events": self.feed.newest(),
            }
        )

    def _topic(self, name: str, topic: Mapping[str, Any]) -> Json:
        partitions = [self._partition((name, number)) for number in self._numbers(name)]
        return {"id": topic["id"], "internal": topic["internal"], "partitions": partitions}

    def _partition(self, key: Key) -> Row | None:
        row = self.registered.get(key)
        if row is None:
            return None
        return [*row[:REPLICAS], self.replicas.get(key, {}), *row[REPLICAS:]]
