"""What happened in a cluster, concluded from two successive states of a node, partition, replica, group or rule."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from milena.node.serving.lab_catalog import ENDS, MATCHES, SIDE

Json: TypeAlias = dict[str, Any]
Row: TypeAlias = list[Any]
Key: TypeAlias = tuple[str, int]

KEPT: Final = 200
"""Events of the full state."""
MOST_PENDING: Final = 1000
"""Events of one delta; of more, the oldest are left out."""

LEADER, LEADER_EPOCH, _, _, ISR, ADDING, REMOVING, ELR, _ = range(9)
"""Positions in the row of a registration."""
ROLE, LOG_START, LOCAL_START, HIGH_WATERMARK, _, LOG_END, TIER_END, SIZE, _, _, _, _, PROPOSED, _ = range(14)
"""Positions in the row of a replica."""
UNKNOWN: Final = -1
STATES: Final = {
    "down": ("ended", "ended"),
    "paused": ("paused", "paused"),
    "up": ("started", "serves"),
    "starting": ("started", "is starting"),
}
"""The kind of the event and its text, by the new state of a node."""


class Feed:
    """The events of one cluster, numbered."""

    def __init__(self, time_ms: Callable[[], int]) -> None:
        self._time_ms = time_ms
        self._newest: deque[Json] = deque(maxlen=KEPT)
        self._pending: deque[Json] = deque(maxlen=MOST_PENDING)
        self._number = 0
        self.starting = True
        """Until the controller's first answer: topics that exist already are no event."""

    def take(self) -> list[Json]:
        """Return the events since the last call."""
        events = list(self._pending)
        self._pending.clear()
        return events

    def newest(self) -> list[Json]:
        """Return the newest events, oldest first."""
        return list(self._newest)

    def add(
        self,
        kind: str,
        text: str,
        *,
        node: str | None = None,
        partition: Key | None = None,
        topic: str | None = None,
        error: bool = False,
    ) -> None:
        """Add one event. ``kind``: see docs/http.md."""
        self._number += 1
        event: Json = {
            "n": self._number,
            "at_ms": self._time_ms(),
            "kind": kind,
            "node": node,
            "topic": topic if partition is None else partition[0],
            "partition": None if partition is None else partition[1],
            "text": text,
            "error": error,
        }
        self._newest.append(event)
        self._pending.append(event)

    # -- nodes

    def node_changed(self, name: str, before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
        if before is None:
            return
        state, former = now["state"], before["state"]
        if now["pid"] != before["pid"] and now["pid"] is not None:
            self.add("started", f"{name}: started, process {now['pid']}", node=name)
        elif state != former:
            resumed = former == "paused" and state != "down"
            change, said = ("resumed", "runs again") if resumed else STATES[state]
            self.add(change, f"{name}: {said}", node=name, error=state == "down")
        if now["epoch"] != before["epoch"] and now["epoch"] is not None and before["epoch"] is not None:
            self.add("registered", f"{name}: registered with broker epoch {now['epoch']}", node=name)
        if now["fenced"] != before["fenced"] and None not in (now["fenced"], before["fenced"]):
            kind = "fenced" if now["fenced"] else "unfenced"
            self.add(kind, f"{name}: {kind}", node=name, error=bool(now["fenced"]))
        if now.get("links") != before.get("links") and now.get("links") is not None:
            self.add("fault", f"{name}: {_cut_links(now['links'])}", node=name)

    # -- partitions

    def topic_changed(self, name: str, before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
        count = f"{now['count']} partition{'' if now['count'] == 1 else 's'}"
        if before is None:
            if not self.starting:
                self.add("topic_created", f"{name}: {count}", topic=name)
        elif before["id"] != now["id"]:
            self.add("topic_created", f"{name}: created again with {count}", topic=name)
        else:
            self.add("topic_created", f"{name}: now {count}", topic=name)

    def topic_gone(self, name: str) -> None:
        self.add("topic_deleted", f"{name}: deleted", topic=name)

    def registration_changed(self, key: Key, before: Row | None, now: Row) -> None:
        if before is None:
            return
        name = f"{key[0]}-{key[1]}"
        if before[LEADER] != now[LEADER] or before[LEADER_EPOCH] != now[LEADER_EPOCH]:
            if now[LEADER] < 0:
                text = f"{name}: no leader, the last one was {before[LEADER]}"
                self.add("leaderless", text, partition=key, error=True)
            else:
                text = f"{name}: leader {before[LEADER]} -> {now[LEADER]}, leader epoch {now[LEADER_EPOCH]}"
                self.add("election", text, partition=key)
        if sorted(before[ISR]) != sorted(now[ISR]):
            shrunk = len(now[ISR]) < len(before[ISR])
            self.add("isr", f"{name}: ISR {before[ISR]} -> {now[ISR]}", partition=key, error=shrunk)
        if before[ADDING] != now[ADDING] or before[REMOVING] != now[REMOVING]:
            moving = now[ADDING] or now[REMOVING]
            text = f"adding {now[ADDING]}, removing {now[REMOVING]}" if moving else "the reassignment is complete"
            self.add("reassignment", f"{name}: {text}", partition=key)

    def replica_changed(self, key: Key, broker: str, before: Row | None, now: Row) -> None:
        if before is None:
            return
        node, name = f"broker-{broker}", f"{key[0]}-{key[1]} at broker {broker}"

        def event(kind: str, text: str, *, error: bool = False) -> None:
            self.add(kind, f"{name}: {text}", node=node, partition=key, error=error)

        if now[ROLE] == "O" or before[ROLE] == "O":
            if now[ROLE] != before[ROLE]:
                event("ended" if now[ROLE] == "O" else "started", f"log {'off' if now[ROLE] == 'O' else 'on'}line")
            return
        if now[LOG_END] < before[LOG_END]:
            event("truncated", f"log end {before[LOG_END]} -> {now[LOG_END]}")
        if now[TIER_END] > before[TIER_END] and now[ROLE] == "L":
            event("uploaded", f"offsets to {now[TIER_END]} are in the tier")
        if now[LOCAL_START] > before[LOCAL_START] and now[TIER_END] > UNKNOWN:
            event("local_deleted", f"local log start {before[LOCAL_START]} -> {now[LOCAL_START]}")
        if now[LOG_START] > before[LOG_START]:
            tiered = before[LOG_START] < before[LOCAL_START]
            kind = "tier_expired" if tiered else "retention"
            event(kind, f"log start {before[LOG_START]} -> {now[LOG_START]}")
        elif _is_cleaned(before, now):
            event("cleaned", f"{before[SIZE]} -> {now[SIZE]} bytes")
        if before[PROPOSED] != now[PROPOSED] and now[PROPOSED]:
            event("isr", f"ISR {now[PROPOSED]} is proposed")

    def follower_changed(self, broker: str, change: Mapping[str, Any]) -> None:
        """``change``: as the lab command ``follower_transitions`` returns it. The first state is no event."""
        if change["from"] is None:
            return
        key, state = (change["topic"], change["partition"]), change["to"]
        text = f"{key[0]}-{key[1]} at broker {broker}: {change['from']} -> {state} at offset {change['offset']}"
        reason = f" ({change['event']})" if change["event"] else ""
        self.add("follower_state", text + reason, node=f"broker-{broker}", partition=key, error=state == "Failed")

    # -- transactions

    def transaction_changed(self, node: str, change: Mapping[str, Any]) -> None:
        """``change``: a transition as the lab command ``transactions`` returns it."""
        kind, text = _transition(change)
        error = kind in ("transaction_timed_out", "producer_fenced", "producer_refused")
        self.add(kind, f"{change['transactional_id']}: {text}", node=node, error=error)

    def transactions_changed(self, node: str, changes: Sequence[Mapping[str, Any]], left_out: int) -> None:
        """Add one event for many changes. ``left_out``: the number of further ones that are not in it."""
        counts = Counter(_transition(change)[0].removeprefix("transaction_") for change in changes)
        said = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in counts.items())
        more = f", and {left_out:,} further changes" if left_out else ""
        self.add("transactions", f"{node}: {said}{more}", node=node)

    # -- groups and faults

    def group_changed(self, name: str, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> None:
        if now is None:
            self.add("group", f"group {name}: gone")
        elif before is None:
            self.add("group", f"group {name}: {now['state']}, {len(now['members'])} members")
        elif (before["state"], len(before["members"])) != (now["state"], len(now["members"])):
            self.add("group", f"group {name}: {before['state']} -> {now['state']}, {len(now['members'])} members")

    def rules_changed(self, node: str, before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> None:
        former, present = ({rule["rule"]: rule for rule in rules} for rules in (before, now))
        for number in present.keys() - former.keys():
            self.add("rule", f"{node}: rule {number}, {_rule_text(present[number])}", node=node)
        for number in former.keys() - present.keys():
            self.add("rule", f"{node}: rule {number} has ended", node=node)


def _transition(change: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind of the event and its text, without the transactional id."""
    producer = f"producer id {change['producer_id']}, epoch {change['epoch']}"
    count = change["partitions"]
    partitions = f"{count} partition{'' if count == 1 else 's'}"
    match change["after"], change["cause"]:
        case _, "refused":
            return "producer_refused", f"request of a fenced producer refused, {producer}"
        case None, _:
            return "transactional_id", "removed, it was not used for transactional.id.expiration.ms"
        case "Empty", _:
            return "transactional_id", f"initialized, {producer}"
        case "Ongoing", _:
            return "transaction_begun", f"transaction begun, {producer}"
        case "PrepareAbort", "timeout":
            return "transaction_timed_out", f"transaction timed out, abort prepared for {partitions}, {producer}"
        case "PrepareAbort", "fenced":
            return "producer_fenced", f"producer fenced by InitProducerId, abort prepared for {partitions}, {producer}"
        case ("PrepareCommit" | "PrepareAbort") as state, _:
            return "transaction_prepared", f"{state.removeprefix('Prepare').lower()} prepared for {partitions}"
        case state, _:
            outcome = "committed" if state == "CompleteCommit" else "aborted"
            return "transaction_completed", f"transaction {outcome}, {partitions} with markers"


def _is_cleaned(before: Row, now: Row) -> bool:
    """Whether the log has become smaller between bounds that have not moved up."""
    unmoved = all(before[bound] == now[bound] for bound in (LOG_START, LOCAL_START))
    return bool(now[SIZE] < before[SIZE] and unmoved and now[LOG_END] >= before[LOG_END])


def _cut_links(links: Sequence[Mapping[str, Any]]) -> str:
    cut = [f"{link['peer']} ({link['direction']})" for link in links]
    return f"links cut: {', '.join(cut)}" if cut else "all links are healed"


def _rule_text(rule: Mapping[str, Any]) -> str:
    named = [f"{key}={rule[key]}" for key in _SHOWN if rule.get(key) is not None and rule[key] != "request"]
    return " ".join([str(rule.get("command", "")), *named])


_SHOWN: Final = (*(one.name for one in (*MATCHES, *ENDS, SIDE)), "ms", "error")
