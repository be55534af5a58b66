"""A rebalance of a classic group with 500 members, each with its own connection: time from the first JoinGroup to the
last SyncGroup response, and CPU time of the broker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from benchmarks.peers import Running, cpu_seconds
from benchmarks.sizes import Sizes
from benchmarks.turns import NotMeasured, Rounds
from benchmarks.wire import Wire, framed
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header

GROUP: Final = "five-hundred"
MEMBERS: Final = 500
JOIN_VERSION: Final = 5
SYNC_VERSION: Final = 3
COORDINATOR_VERSION: Final = 1
MEMBER_ID_REQUIRED: Final = 79
TIMEOUT_MS: Final = 60_000
LIMIT: Final = 60.0


class Member:
    def __init__(self, address: tuple[str, int]) -> None:
        self.wire = Wire(address)
        self.id = ""
        self.generation = -1
        self.leads: Sequence[str] = ()
        """The ids of all members, in the leader's response."""

    def send_join(self, number: int) -> None:
        """Send other metadata than before: only then a new generation starts, whichever member is first."""
        protocols = [{"name": "range", "metadata": b"%d" % number}]
        times = {"session_timeout_ms": TIMEOUT_MS, "rebalance_timeout_ms": TIMEOUT_MS}
        who = {"group_id": GROUP, "member_id": self.id, "group_instance_id": None, "protocol_type": "consumer"}
        body = messages.encode_request(ApiKey.JOIN_GROUP, JOIN_VERSION, **who, **times, protocols=protocols)
        self.wire.send_framed(framed(ApiKey.JOIN_GROUP, JOIN_VERSION, body))

    def joined(self) -> int:
        """The error code of the response."""
        answer = answered(self.wire, ApiKey.JOIN_GROUP, JOIN_VERSION)
        self.id, self.generation = answer.member_id, answer.generation_id
        self.leads = [member.member_id for member in answer.members]
        return int(answer.error_code)

    def send_sync(self) -> None:
        assignments = [{"member_id": member, "assignment": b"\0\0\0\0\0\0\0\0\0\0"} for member in self.leads]
        who = {"group_id": GROUP, "generation_id": self.generation, "member_id": self.id, "group_instance_id": None}
        body = messages.encode_request(ApiKey.SYNC_GROUP, SYNC_VERSION, **who, assignments=assignments)
        self.wire.send_framed(framed(ApiKey.SYNC_GROUP, SYNC_VERSION, body))


def rebalance(running: Running, sizes: Sizes) -> Rounds:
    """The first round is not counted."""
    address = coordinator(running.bootstrap)
    with ExitStack() as open_ones:
        members = [Member(address) for _ in range(MEMBERS)]
        for member in members:
            open_ones.enter_context(closing(member.wire))
        for member in members:
            member.send_join(0)
            if member.joined() != MEMBER_ID_REQUIRED:
                raise NotMeasured("a member without an id is not given one first")
        join_all(members[:1], 0)  # an empty group does not wait for further members
        for number in range(1 + sizes.group_rounds):
            begin, before = time.perf_counter(), cpu_seconds(running.brokers[0])
            join_all(members, 1 + number)
            elapsed, spent = time.perf_counter() - begin, cpu_seconds(running.brokers[0]) - before
            yield {"rebalance_s": elapsed, "rebalance_cpu_s": spent} if number else {}


def join_all(members: Sequence[Member], number: int) -> None:
    before = members[0].generation
    for member in members:
        member.send_join(number)
    if errors := {error for member in members if (error := member.joined())}:
        raise RuntimeError(f"joining failed with {errors}")
    new = {member.generation for member in members}
    if len(new) != 1 or new == {before} or sum(bool(member.leads) for member in members) != 1:
        raise RuntimeError(f"the members are not of a new generation with one leader: {before}, then {new}")
    for member in members:
        member.send_sync()
    for member in members:
        if error := answered(member.wire, ApiKey.SYNC_GROUP, SYNC_VERSION).error_code:
            raise RuntimeError(f"SyncGroup failed with {error}")


def coordinator(bootstrap: str) -> tuple[str, int]:
    """Return the address of the group's coordinator, once there is one."""
    brokers = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=30).brokers
    first = next(iter(brokers.values()))
    deadline = time.monotonic() + LIMIT
    with closing(Wire((str(first.host), first.port))) as wire:
        while time.monotonic() < deadline:
            body = messages.encode_request(ApiKey.FIND_COORDINATOR, COORDINATOR_VERSION, key=GROUP, key_type=0)
            wire.send_framed(framed(ApiKey.FIND_COORDINATOR, COORDINATOR_VERSION, body))
            answer = answered(wire, ApiKey.FIND_COORDINATOR, COORDINATOR_VERSION)
            if not answer.error_code:
                return str(answer.host), int(answer.port)
            time.sleep(0.1)
    raise NotMeasured("there is no coordinator of groups")


def answered(wire: Wire, key: ApiKey, version: int) -> Any:
    _, body = parse_response_header(key, version, memoryview(wire.receive()))
    return messages.decode_response(key, version, body)
