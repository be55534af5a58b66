"""Sends the steps of a script to both sides until their responses differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from uuid import UUID

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.pair import Answers, Pair, eventually
from tests.oracle.differential.sequences.known import KNOWN, Found
from tests.oracle.differential.sequences.script import TAG, Script, Step, tagged
from tests.oracle.differential.sides import LIMIT, SILENT, Name, Side

CLIENTS: Final = 4
QUIET: Final = 0.05
"""Seconds without a response after which a JoinGroup or SyncGroup probably waits for others: then the groups are
described."""
SLOW: Final = 5.0
"""Largest difference between the response times of the sides, in seconds."""
ALIKE: Final = 2.0
"""Seconds for the groups to be in the same state on both sides."""
MARKER: Final = "marker"
TOPICS: Final = [f"{TAG}-{letter}" for letter in "abc"]
TRANSACTIONS: Final = [f"{TAG}-{letter}" for letter in "xy"]
GROUPS: Final = [f"{TAG}-{letter}" for letter in "gh"]
EMPTY_GROUP: Final = f"{TAG}-none"
"""A group that has no members."""
CHANGES: Final = frozenset({
    ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_CLIENT_QUOTAS,
})  # fmt: skip
"""Changes that the brokers apply after the controller has answered."""
ENDS: Final = frozenset({ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID})
"""Requests that may end a transaction, whose markers are written after the answer."""
WAITING: Final = {ApiKey.JOIN_GROUP: "PreparingRebalance", ApiKey.SYNC_GROUP: "CompletingRebalance"}
"""Requests that wait for other members, and the state of a group in which they do."""
OF_GROUPS: Final = frozenset({*WAITING, ApiKey.LEAVE_GROUP, ApiKey.DELETE_GROUPS})
GIVEN: Final[dict[ApiKey, Callable[[Any], Any]]] = {
    ApiKey.JOIN_GROUP: lambda answer: answer["member_id"],
    ApiKey.INIT_PRODUCER_ID: lambda answer: max(0, answer["producer_id"]),
    ApiKey.END_TXN: lambda answer: max(0, answer["producer_id"]),
    ApiKey.FETCH: lambda answer: answer["session_id"],
}
"""Reads the id in a response that gets a name."""
BROKER_KEYS: Final = ("leader.replication.throttled.rate", "log.cleaner.delete.retention.ms")
"""Keys of the brokers' dynamic configuration that a script may change."""


class Names(dict[str, Any]):
    """A side's ids by name. A name without an id gets one that does not exist."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("id of"):
            return UUID(int=99)
        return "" if name.startswith("member") else 4_000_000 if name.startswith("producer") else 0


@dataclass
class Outcome:
    """How a script ended: the step and the lines that differ, or none. ``known`` has the known differences met."""

    compared: int = 0
    at: int | None = None
    lines: list[str] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    stopped: str = ""
    """The known difference that ended it."""
    signature: str = ""

    @property
    def differs(self) -> bool:
        return bool(self.lines)


class Marker:
    """Waits for both brokers: each change before ``catch_up`` has been applied after it."""

    def __init__(self, sides: tuple[Side, Side]) -> None:
        self._pair = Pair(sides)
        self._pair.create(MARKER)
        self._value = 0

    def catch_up(self) -> None:
        """Make two changes: a broker shows a change a moment before it has applied all of it, but it applies changes
        one after the other."""
        for _ in range(2):
            self._value += 1
            change = {"name": "flush.messages", "config_operation": 0, "value": str(self._value)}
            resource = {"resource_type": 2, "resource_name": MARKER}
            self._pair.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[{**resource, "configs": [change]}])
            wanted = [{**resource, "configuration_keys": ["flush.messages"]}]
            eventually(partial(self._look, wanted))

    def _look(self, wanted: Any) -> None:
        for answer in self._pair.ask(ApiKey.DESCRIBE_CONFIGS, 4, resources=wanted).both:
            assert answer["results"][0]["configs"][0]["value"] == str(self._value)

    def close(self) -> None:
        self._pair.delete(MARKER)
        self._pair.close()


class Player:
    """Plays scripts one after the other, each with separate topics and groups."""

    def __init__(self, sides: tuple[Side, Side]) -> None:
        self._sides = sides
        self._others = _existing(sides)
        self._marker = Marker(sides)
        self._runs = 0

    def play(self, script: Script) -> Outcome:
        self._runs += 1
        tag = f"r{self._runs:06d}"
        kept = [side.names for side in self._sides]
        for side in self._sides:
            side.names = Names()
            side.epochs = {}
        run = _Run(self._sides, self._marker, tag, script, self._others)
        try:
            return run.outcome()
        finally:
            run.clean()
            for side, names in zip(self._sides, kept, strict=True):
                side.names = names

    def close(self) -> None:
        self._marker.close()


class _Run:
    def __init__(
        self, sides: tuple[Side, Side], marker: Marker, tag: str, script: Script, others: Mapping[str, AbstractSet[str]]
    ) -> None:
        self._sides = sides
        self._others = others
        self._marker = marker
        self._tag = tag
        self._script = script
        self._clients = [Pair(sides) for _ in range(CLIENTS)]
        self._watch = Pair(sides)
        self._waiting: dict[int, tuple[int, Step]] = {}
        """By client: a request without a response yet, with its index in the script."""
        self._found = Outcome()
        self._now = 0

    # -- the steps

    def outcome(self) -> Outcome:
        for index, step in enumerate(self._script):
            self._now = index
            free = [(step.client + turn) % CLIENTS for turn in range(CLIENTS)]
            client = next((one for one in free if one not in self._waiting), None)
            if client is None or self._joins_again(step) or self._makes_topics(step):
                continue
            if self._step(index, step, client) or self._collect(step):
                break
        return self._found

    def _joins_again(self, step: Step) -> bool:
        """Whether a waiting member would send a second JoinGroup: Kafka answers only one of them."""
        who = step.fields.get("group_id"), step.fields.get("member_id")
        waiting = [one.fields for _, one in self._waiting.values() if one.key is step.key]
        return step.key is ApiKey.JOIN_GROUP and who in [(one["group_id"], one["member_id"]) for one in waiting]

    def _makes_topics(self, step: Step) -> bool:
        """Whether a Metadata request of an old version would create topics, which takes some time."""
        if step.key is not ApiKey.METADATA or step.version >= 4 or not step.fields["topics"]:
            return False
        topics = tagged(step.fields["topics"], TAG, self._tag)
        answers = self._watch.ask(ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=False)
        return any(one["error_code"] for answer in answers.both for one in answer["topics"])

    def _step(self, index: int, step: Step, client: int) -> bool:
        pair = self._clients[client]
        pair.send(step.key, step.version, **tagged(step.fields, TAG, self._tag))
        key, version = step.key, step.version
        if key is ApiKey.PRODUCE and step.fields["acks"] == 0:
            key, version = ApiKey.METADATA, 9
            pair.send(key, version, topics=[])
        if key in WAITING and self._none_answers(pair):
            self._waiting[client] = index, step
            return False
        return self._compare(index, step, self._receive(pair, key, version))

    def _receive(self, pair: Pair, key: ApiKey, version: int) -> Answers:
        """Receive both responses. When one has come, the other one may take SLOW seconds longer."""
        until = time.monotonic() + LIMIT
        while all(waits := pair.waits()) and time.monotonic() < until:
            pass
        until = time.monotonic() + SLOW
        while any(waits) and time.monotonic() < until:
            waits = pair.waits()
        if not any(waits):
            return pair.receive(key, version)
        pair.close()
        kafka, milena = (SILENT if one else "an answer came" for one in waits)
        return Answers(self._sides, (kafka, milena))

    def _none_answers(self, pair: Pair) -> bool:
        until = time.monotonic() + QUIET
        while all(pair.waits()):
            if time.monotonic() > until:
                return True
        return False

    def _compare(self, index: int, step: Step, answers: Answers) -> bool:
        """Compare both responses; return whether the script ends here."""
        self._found.compared += 1
        answers = self._own(answers)
        self._learn(step, answers)
        left = []
        for line in answers.differences(self._ignored(step)):
            line = line.replace(self._tag, TAG)
            found = Found(step, answers.kafka, answers.milena, line, self._before(index))
            known = next((one for one in KNOWN if one.covers(found)), None)
            if known is None:
                left.append(line)
            else:
                self._found.known.add(known.name)
                self._found.stopped = self._found.stopped or ("" if known.goes_on else known.name)
        if left and not self._found.stopped:
            self._found.lines = left
            self._found.signature = f"{step.key.name} {sorted({signature(line) for line in left})}"
        if self._found.stopped or left:
            self._found.at = index
            return True
        if step.key in ENDS:
            self._await_markers()
        if step.key in CHANGES and not step.fields.get("validate_only"):
            self._marker.catch_up()
            self._learn_ids(step)
        return False

    def _before(self, index: int) -> Script:
        """Return the steps that were sent before the response came, which may be long after the request."""
        return (
            self._script[:index]
            if index == self._now
            else [*self._script[:index], *self._script[index + 1 : self._now + 1]]
        )

    def _ignored(self, step: Step) -> tuple[str, ...]:
        """Return the fields that may differ: sizes of batches that each side compresses depend on its library."""
        found = IGNORED.get(step.key, ())
        if step.key is ApiKey.DESCRIBE_LOG_DIRS and "compression.type" in repr(self._script):
            found += ("partition_size",)
        return found

    def _own(self, answers: Answers) -> Answers:
        """Leave out what other runs and tests have made, which the sides may remove at different times."""
        kafka, milena = (_without_others(answer, self._tag, self._others) for answer in answers.both)
        return Answers(answers.sides, (kafka, milena))

    def _learn(self, step: Step, answers: Answers) -> None:
        if not step.learns:
            return
        for side, answer in zip(self._sides, answers.both, strict=True):
            if isinstance(answer, dict) and not answer.get("error_code") and "producer_epoch" in answer:
                side.epochs[step.learns] = answer["producer_epoch"]
            if isinstance(answer, dict) and (given := GIVEN[step.key](answer)):
                side.names[step.learns] = given

    def _learn_ids(self, step: Step) -> None:
        if step.key is not ApiKey.CREATE_TOPICS:
            return
        for topic in {one["name"] for one in step.fields["topics"]} & set(TOPICS):
            name = topic.replace(TAG, self._tag)
            answers = self._watch.ask(ApiKey.METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=False)
            for side, answer in zip(self._sides, answers.both, strict=True):
                if answer["topics"][0]["topic_id"] is not None:
                    side.names[f"id of {name}"] = answer["topics"][0]["topic_id"]

    def _await_markers(self) -> None:
        """Wait until no transaction is between its end and its last marker, for ALIKE seconds at most."""
        names = [name.replace(TAG, self._tag) for name in TRANSACTIONS]
        until = time.monotonic() + ALIKE
        while time.monotonic() < until:
            both = self._watch.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names).both
            if not any(
                one["transaction_state"].startswith("Prepare")
                for answer in both
                for one in answer["transaction_states"]
            ):
                return

    # -- requests that wait for others

    def _collect(self, step: Step) -> bool:
        """Receive the responses that have come, or must come because no group is in a state in which requests wait."""
        if not self._waiting or (step.key not in OF_GROUPS and step.key is not ApiKey.HEARTBEAT):
            return False
        states = self._states()
        for client, (index, waiting) in list(self._waiting.items()):
            here = states.get(waiting.fields["group_id"].replace(TAG, self._tag), ("", ""))
            pair = self._clients[client]
            if all(pair.waits()) and WAITING[waiting.key] in here:
                continue
            del self._waiting[client]
            if self._compare(index, waiting, self._receive(pair, waiting.key, waiting.version)):
                return True
        return False

    def _states(self) -> dict[str, tuple[str, str]]:
        """Return the state of each group on both sides, when they are equal or after ALIKE seconds."""
        names = [name.replace(TAG, self._tag) for name in GROUPS]
        until = time.monotonic() + ALIKE
        while True:
            both = self._watch.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=names).both
            kafka, milena = ({one["group_id"]: _state(one) for one in answer["groups"]} for answer in both)
            if kafka == milena or time.monotonic() > until:
                return {name: (kafka[name][0], milena[name][0]) for name in names}

    # -- the end

    def clean(self) -> None:
        """Delete everything that a script has created, so that thousands of scripts can run."""
        for pair in self._clients:
            pair.close()
        pair = self._watch
        learnt = {name for side in self._sides for name in side.names}
        for name in sorted(one for one in learnt if one.startswith("session")):
            closing: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "topics": []}
            pair.ask(ApiKey.FETCH, 12, session_id=Name(name), session_epoch=-1, **closing)
        for name in (one for one in TRANSACTIONS if any(one in repr(step.fields) for step in self._script)):
            self._end(pair, name.replace(TAG, self._tag))
        groups = [name.replace(TAG, self._tag) for name in GROUPS]
        members: list[dict[str, Any]] = [{"member_id": Name(one)} for one in sorted(learnt) if one.startswith("member")]
        members += [{"member_id": "", "group_instance_id": one} for one in ("i", "j")]
        for group in groups:
            if any(step.fields.get("group_id", "").replace(TAG, self._tag) == group for step in self._script):
                pair.ask(ApiKey.LEAVE_GROUP, 5, group_id=group, members=members)
        pair.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[*groups, "", EMPTY_GROUP.replace(TAG, self._tag)])
        topics = [name.replace(TAG, self._tag) for name in TOPICS]
        pair.ask(ApiKey.DELETE_TOPICS, 5, topic_names=topics, timeout_ms=10_000)
        if any(_changes_brokers(step) for step in self._script):
            configs = [{"name": key, "config_operation": 1, "value": None} for key in BROKER_KEYS]
            resources = [{"resource_type": 4, "resource_name": "", "configs": configs}]
            pair.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
            self._marker.catch_up()
        pair.close()

    def _end(self, pair: Pair, transactional_id: str) -> None:
        """End an open transaction: another producer with the transactional id aborts it."""
        identity: dict[str, Any] = {"transactional_id": transactional_id, "producer_id": -1, "producer_epoch": -1}
        for _ in range(2):
            pair.ask(ApiKey.INIT_PRODUCER_ID, 4, **identity, transaction_timeout_ms=60_000)
            self._await_markers()


IGNORED: Final[dict[ApiKey, tuple[str, ...]]] = {
    ApiKey.INIT_PRODUCER_ID: ("producer_id",),
    ApiKey.DESCRIBE_LOG_DIRS: ("log_dir", "total_bytes", "usable_bytes"),
}


LISTINGS: Final[Mapping[str, tuple[ApiKey, int, str]]] = {
    "topics": (ApiKey.METADATA, 12, "name"),
    "groups": (ApiKey.LIST_GROUPS, 4, "group_id"),
    "transaction_states": (ApiKey.LIST_TRANSACTIONS, 0, "transactional_id"),
}
"""The fields of responses that list what a broker has, the request for all of it, and the field with the name."""


def _existing(sides: tuple[Side, Side]) -> Mapping[str, AbstractSet[str]]:
    """Return the names of what other tests have left, by field of ``LISTINGS``. Kafka's own topics belong to all."""
    pair = Pair(sides)
    found = {}
    for listing, (key, version, name) in LISTINGS.items():
        asked: dict[str, Any] = {"topics": None} if key is ApiKey.METADATA else {}
        both = pair.ask(key, version, **asked).both
        found[listing] = {one[name] for answer in both for one in answer[listing] if not one.get("is_internal")}
    pair.close()
    return found


def _without_others(answer: Any, tag: str, others: Mapping[str, AbstractSet[str]]) -> Any:
    """If a response lists all topics, groups or transactional ids, leave out those that do not belong to this run."""
    if not isinstance(answer, dict):
        return answer
    own = dict(answer)
    for listing, (_, _, name) in LISTINGS.items():
        if isinstance(own.get(listing), list):
            own[listing] = [
                one
                for one in own[listing]
                if not _of_another(str(one.get(name)), tag) and one.get(name) not in others[listing]
            ]
    return own


def _of_another(name: str, tag: str) -> bool:
    return name == MARKER or (name[:1] == "r" and name[1:7].isdigit() and not name.startswith(tag))


def _state(group: dict[str, Any]) -> tuple[str, int]:
    """Take Dead for Empty, because Kafka keeps a group that has always been empty longer."""
    state = group["group_state"]
    return ("Empty" if state == "Dead" else state), len(group["members"])


def _changes_brokers(step: Step) -> bool:
    return any(one.get("resource_type") == 4 for one in step.fields.get("resources") or ())


def signature(line: str) -> str:
    """Return the kind of difference of a line: the field, and the values if they are codes or states."""
    path, _, values = line.partition(": ")
    bare = "".join(one for one in path if not one.isdigit()).replace("[]", "")
    return f"{bare}: {values}" if bare.endswith(("error_code", "state")) or not bare else bare
