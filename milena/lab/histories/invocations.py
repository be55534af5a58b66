"""Operations without an end in the history, because the run ended or the client lost its connection: their outcome is
unknown, and a fault lasts until the end of the history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from milena.lab.histories.events import Event, Invoke, RequestOutcome, Send, TopicChange
from milena.lab.histories.faults import Fault, Kind
from milena.lab.histories.group_events import OffsetCommit
from milena.lab.histories.keyed import KeyedWrite
from milena.lab.histories.transactions.events import TransactionalSend, TransactionEnd


class OpenOperations:
    """The operations that have started and not ended, up to a position in a history."""

    def __init__(self) -> None:
        self._begun: dict[tuple[object, ...], Invoke] = {}

    def add(self, event: Event) -> None:
        if isinstance(event, Invoke):
            self._begun[_name(event)] = event
        else:
            self._begun.pop(_name(event), None)

    def ends(self) -> Iterator[Event]:
        """Return an end of unknown outcome for each open operation."""
        return map(unknown_end, self._begun.values())


def completed(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the events without ``Invoke``, and then the missing ends."""
    open_operations = OpenOperations()
    for event in events:
        open_operations.add(event)
        if not isinstance(event, Invoke):
            yield event
    yield from open_operations.ends()


def _name(event: Event) -> tuple[object, ...]:
    """Return a key that is the same for an operation's start and its end."""
    match event:
        case Invoke():
            return event.operation, event.partition, event.key, event.value, event.begun
        case Send():
            return "send", event.partition, "", event.value, event.begun
        case KeyedWrite():
            return "keyed", event.partition, event.key, event.value, event.begun
        case OffsetCommit():
            return "offset commit", event.partition, event.group, str(event.offset), event.begun
        case TopicChange():
            return "change", ("", 0), "", event.name, event.begun
        case TransactionalSend():
            return "transactional send", event.partition, event.transaction, event.value, event.begun
        case TransactionEnd() if event.commit:
            return "commit", ("", 0), event.transaction, None, event.begun
        case Fault():
            return "fault", ("", 0), nodes_text(event.nodes), event.kind.value, event.begun
        case _:
            return ()


def nodes_text(nodes: Iterable[int]) -> str:
    """Return the ``key`` of a fault's ``Invoke``."""
    return " ".join(map(str, nodes))


def unknown_end(invoke: Invoke) -> Event:
    """Return the end of unknown outcome of an operation."""
    outcome, begun = RequestOutcome.UNKNOWN, invoke.begun
    match invoke.operation:
        case "send":
            return Send(invoke.partition, invoke.value or "", begun, begun, outcome, acks=invoke.acks)
        case "keyed":
            return KeyedWrite(invoke.partition, invoke.key, invoke.value, begun, begun, outcome)
        case "offset commit":
            offset = int(invoke.value or 0)
            return OffsetCommit(
                invoke.key, "", begun, begun, outcome, "", -1, partition=invoke.partition, offset=offset, retried=True
            )
        case "transactional send":
            return TransactionalSend(invoke.partition, invoke.value or "", invoke.key, begun, begun, outcome)
        case "commit":
            return TransactionEnd(invoke.key, True, begun, begun, outcome)
        case "fault":
            return Fault(Kind(invoke.value), tuple(map(int, invoke.key.split())), begun, inf)
        case _:
            return TopicChange(invoke.value or "", bool(invoke.acks), outcome, begun=begun)
