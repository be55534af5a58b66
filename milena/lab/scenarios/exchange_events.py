"""Turns recorded requests and their answers into events in the documents' terms.

A Fetch that returns nothing, and a heartbeat that changes nothing, are no events. A fetch session leaves out partitions
that have not changed, so the last position of each is remembered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from milena.lab.scenarios.driver import CONTROLLER
from milena.lab.scenarios.events import Event, EventKind
from milena.lab.scenarios.peers.private_epoch_ends import UNKNOWN_OFFSET_FOR_LEADER_EPOCH
from milena.lab.scenarios.script import BROKERS
from milena.lab.scenarios.transactions.events import TRANSACTION_EVENTS, Shown

NONE: Final = "NONE"
CONSUMER: Final = "consumer"
OF_BROKER: Final = re.compile(r"broker-(\d+)-")
TIMESTAMPS: Final = {
    -1: "LATEST_TIMESTAMP",
    -2: "EARLIEST_TIMESTAMP",
    -3: "MAX_TIMESTAMP",
    -4: "EARLIEST_LOCAL_TIMESTAMP",
    -5: "LATEST_TIERED_TIMESTAMP",
    -6: "EARLIEST_PENDING_UPLOAD_TIMESTAMP",
}
PRIVATE_ERRORS: Final = {UNKNOWN_OFFSET_FOR_LEADER_EPOCH: "UNKNOWN_OFFSET_FOR_LEADER_EPOCH"}
"""Errors that only test peers return."""
Fields: TypeAlias = Mapping[str, Any]
"""A message, or part of one, as ``node.rules.tracing`` records it."""
EpochName: TypeAlias = Callable[[int], str]
"""Returns ``LE-1`` for a leader epoch of the run."""


class Position(NamedTuple):
    """What a Fetch asked for."""

    offset: int
    last_fetched_epoch: int
    leader_epoch: int


def broker_name(node: int) -> str:
    """Return the letter of a broker; the controller and clients have ids that are none."""
    return BROKERS[node - 1] if 0 < node <= len(BROKERS) else str(node)


class ExchangeEvents:
    """Makes the events of one run. ``topics``: the names of the topics to show, by name and by id."""

    def __init__(self, topics: Mapping[str, str]) -> None:
        self._topics = topics
        self._positions: dict[tuple[str, str, str, int], Position] = {}
        self._broker_epochs: dict[tuple[str, str], int] = {}
        self._fenced: dict[str, bool] = {}

    def of(self, node: str, at: float, exchange: Fields, epoch: EpochName) -> list[Event]:
        """Return the events of one exchange that ``node`` has answered; none for an API that is not shown."""
        if (shown := TRANSACTION_EVENTS.get(exchange["api"])) is not None and "undecodable" not in exchange["request"]:
            return [_shown(at, node, exchange, one) for one in shown(exchange)]
        render = _RENDERED.get(exchange["api"])
        if render is None or "undecodable" in exchange["request"]:
            return []
        return list(render(self, node, at, exchange, epoch))

    def _partitions(self, message: Fields) -> Iterator[tuple[str, int, Fields]]:
        """Yield topic, number and fields of each partition that is shown."""
        for topic in message.get("topics") or message.get("responses") or ():
            key = next((topic[name] for name in ("name", "topic", "topic_id") if topic.get(name)), None)
            name = self._topics.get(str(key))
            if name is None:
                continue
            for partition in topic["partitions"]:
                number = next(partition[one] for one in ("partition_index", "partition") if one in partition)
                yield name, number, partition

    def _fetch(self, node: str, at: float, exchange: Fields, epoch: EpochName) -> Iterator[Event]:
        request, response = exchange["request"], exchange["response"]
        source, broker_epoch = _replica(request)
        is_new = source != CONSUMER and self._broker_epochs.get((source, node)) != broker_epoch
        for topic, number, partition in self._partitions(request):
            self._positions[source, node, topic, number] = Position(
                partition["fetch_offset"],
                partition.get("last_fetched_epoch", -1),
                partition.get("current_leader_epoch", -1),
            )
        for topic, number, answer in self._partitions(response):
            position = self._positions.get((source, node, topic, number))
            result = _fetched(answer, epoch)
            if position is None or not (result or is_new):
                continue
            text = _position(position, epoch, source)
            if is_new and broker_epoch >= 0:
                self._broker_epochs[source, node] = broker_epoch
                text += f", broker epoch {broker_epoch}"
                is_new = False
            yield Event(
                at=at,
                kind=EventKind.REQUEST,
                source=source,
                target=node,
                api="Fetch",
                text=self._of(topic, number) + text,
                result=result or "no records",
                error=answer["error_code"] != NONE,
            )

    def _list_offsets(self, node: str, at: float, exchange: Fields, epoch: EpochName) -> Iterator[Event]:
        request = exchange["request"]
        source = _replica(request)[0]
        asked = {(topic, number): one["timestamp"] for topic, number, one in self._partitions(request)}
        for topic, number, answer in self._partitions(exchange["response"]):
            timestamp = asked.get((topic, number))
            found = f"{answer['offset']}, {_epoch(answer['leader_epoch'], epoch)}"
            yield _answered(
                at,
                source,
                node,
                "ListOffsets",
                self._of(topic, number) + (TIMESTAMPS.get(timestamp, str(timestamp)) if timestamp is not None else ""),
                answer,
                found if answer["offset"] >= 0 else "none",
            )

    def _epoch_end(self, node: str, at: float, exchange: Fields, epoch: EpochName) -> Iterator[Event]:
        request = exchange["request"]
        source = _replica(request)[0]
        asked = {(topic, number): _epochs(one, epoch) for topic, number, one in self._partitions(request)}
        for topic, number, answer in self._partitions(exchange["response"]):
            of_epoch = f"{_epoch(answer['leader_epoch'], epoch)}, " if "leader_epoch" in answer else ""
            found = f"{of_epoch}end offset {answer['end_offset']}"
            yield _answered(
                at,
                source,
                node,
                "OffsetForLeaderEpoch",
                self._of(topic, number) + asked.get((topic, number), "no epoch"),
                answer,
                found if answer["end_offset"] >= 0 else "unknown",
            )

    def _alter_partition(self, node: str, at: float, exchange: Fields, epoch: EpochName) -> Iterator[Event]:
        request, response = exchange["request"], exchange["response"]
        source = broker_name(request["broker_id"])
        proposed = {(topic, number): _isr(one) for topic, number, one in self._partitions(request)}
        if response["error_code"] != NONE:
            for (topic, number), isr in proposed.items():
                yield _answered(at, source, node, "AlterPartition", self._of(topic, number) + isr, response, "")
        for topic, number, answer in self._partitions(response):
            members = ", ".join(broker_name(one) for one in answer.get("isr", ()))
            result = f"ISR [{members}], partition epoch {answer.get('partition_epoch')}"
            text = self._of(topic, number) + proposed.get((topic, number), "")
            yield _answered(at, source, node, "AlterPartition", text, answer, result)

    def _registration(self, node: str, at: float, exchange: Fields, epoch: EpochName) -> Iterator[Event]:
        request, response = exchange["request"], exchange["response"]
        source = broker_name(request["broker_id"])
        result = f"broker epoch {response['broker_epoch']}"
        self._fenced[source] = True
        yield _answered(at, source, node, "BrokerRegistration", "", response, result)

    def _heartbeat(self, node: str, at: float, exchange: Fields, epoch: EpochName) -> Iterator[Event]:
        request, response = exchange["request"], exchange["response"]
        source, fenced = broker_name(request["broker_id"]), bool(response["is_fenced"])
        if response["error_code"] == NONE and self._fenced.get(source) == fenced:
            return
        if response["error_code"] == NONE:
            self._fenced[source] = fenced
        text = f"broker epoch {request['broker_epoch']}"
        yield _answered(at, source, node, "BrokerHeartbeat", text, response, "fenced" if fenced else "unfenced")

    @staticmethod
    def _of(topic: str, number: int) -> str:
        """Return a prefix that names a partition other than the scenario's one."""
        return "" if (topic, number) == ("t", 0) else f"{topic}-{number} "


Rendered: TypeAlias = Callable[[ExchangeEvents, str, float, Fields, EpochName], Iterator[Event]]
_RENDERED: Final[Mapping[str, Rendered]] = {
    "FETCH": ExchangeEvents._fetch,
    "LIST_OFFSETS": ExchangeEvents._list_offsets,
    "OFFSET_FOR_LEADER_EPOCH": ExchangeEvents._epoch_end,
    "ALTER_PARTITION": ExchangeEvents._alter_partition,
    "BROKER_REGISTRATION": ExchangeEvents._registration,
    "BROKER_HEARTBEAT": ExchangeEvents._heartbeat,
}


def watched_at(node: str, *, transactions: bool) -> Sequence[str]:
    """Return the APIs that are recorded at a node."""
    if node == CONTROLLER:
        return ("ALTER_PARTITION", "BROKER_REGISTRATION", "BROKER_HEARTBEAT")
    return ("FETCH", "LIST_OFFSETS", "OFFSET_FOR_LEADER_EPOCH", *(TRANSACTION_EVENTS if transactions else ()))


def _shown(at: float, node: str, exchange: Fields, shown: Shown) -> Event:
    return Event(
        at=at,
        kind=EventKind.REQUEST,
        source=client_name(exchange["client_id"]),
        target=node,
        api=shown.api,
        text=shown.text,
        result=shown.result if shown.error == NONE else shown.error,
        error=shown.error != NONE,
    )


def client_name(client_id: str | None) -> str:
    """Return the letter of the broker whose connection has this client id; otherwise the client id."""
    found = OF_BROKER.match(client_id or "")
    return broker_name(int(found[1])) if found else client_id or CONSUMER


def _answered(at: float, source: str, target: str, api: str, text: str, answer: Fields, result: str) -> Event:
    code = answer["error_code"]
    error = PRIVATE_ERRORS[code] if code in PRIVATE_ERRORS else str(code)
    return Event(
        at=at,
        kind=EventKind.REQUEST,
        source=source,
        target=target,
        api=api,
        text=text,
        result=result if error == NONE else error,
        error=error != NONE,
    )


def _replica(request: Fields) -> tuple[str, int]:
    """Return the sender of a request that a replica or a consumer may send, and its broker epoch (-1: none)."""
    state = request.get("replica_state") or {}
    node = state.get("replica_id", -1)
    node = request.get("replica_id", -1) if node < 0 else node
    return (broker_name(node) if node > 0 else CONSUMER), state.get("replica_epoch", -1)


def _position(position: Position, epoch: EpochName, source: str) -> str:
    if source == CONSUMER:
        current = position.leader_epoch
        asked = str(position.offset)
        asked += (
            f", last fetched epoch {epoch(position.last_fetched_epoch)}" if position.last_fetched_epoch >= 0 else ""
        )
        return asked + (f", current leader epoch {epoch(current)}" if current >= 0 else "")
    return f"offset {position.offset}, {_epoch(position.last_fetched_epoch, epoch)}"


def _fetched(answer: Fields, epoch: EpochName) -> str:
    """Return what a partition's answer says; empty if it says nothing."""
    if answer["error_code"] != NONE:
        return str(answer["error_code"])
    diverging = answer.get("diverging_epoch") or {}
    if diverging.get("end_offset", -1) >= 0:
        return f"diverging epoch {epoch(diverging['epoch'])}, end offset {diverging['end_offset']}"
    return f"records, high watermark {answer['high_watermark']}" if answer.get("records") else ""


def _isr(partition: Fields) -> str:
    if "new_isr_with_epochs" in partition:
        members = [
            broker_name(one["broker_id"]) + (f"@{one['broker_epoch']}" if one["broker_epoch"] >= 0 else "")
            for one in partition["new_isr_with_epochs"]
        ]
    else:
        members = [broker_name(one) for one in partition["new_isr"]]
    return f"[{', '.join(members)}]"


def _epochs(partition: Fields, name: EpochName) -> str:
    """Return the epoch in a question, or the sequence with end offsets that KIP-279's alternative 2 has."""
    if "leader_epochs" in partition:
        return ", ".join(f"({name(one['leader_epoch'])}, {one['end_offset']})" for one in partition["leader_epochs"])
    return _epoch(partition["leader_epoch"], name)


def _epoch(epoch: int, name: EpochName) -> str:
    return "no epoch" if epoch < 0 else name(epoch)
