"""A shard with a log that the test controls."""

from __future__ import annotations

from milena.broker.coordinators.loading import ReadableLog
from milena.broker.groups.joining import join
from milena.broker.groups.loading import load
from milena.broker.groups.membership import sync
from milena.broker.groups.model import CommittedOffset, GroupSettings, JoinAnswer, JoinRequest
from milena.broker.groups.shard import Shard
from milena.protocol.cooperative import run_now
from milena.runtime.randomness import Randomness
from tests.unit.broker.groups.hand_log import HandLog
from tests.unit.broker.hand_clock import HandClock

ANSWER_ONE = CommittedOffset(41, 3, "note", 1_000)


def load_at_once(log: ReadableLog, shard: Shard) -> None:
    """Load a log like a coordinator, without yields."""
    run_now(load(log, shard))
    run_now(shard.begin())


class World:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.log = HandLog()
        self.shard = self.new_shard()

    def new_shard(self) -> Shard:
        settings = GroupSettings(initial_delay_ms=0)
        return Shard(self.log, clock=self.clock, random=Randomness(1), settings=settings)

    def join(self, group_id: str) -> JoinAnswer:
        group = self.shard.get_or_create(group_id)
        request = JoinRequest("", None, "c", "/h", 10_000, 60_000, "consumer", (("range", b"m"),), False, True)
        answers: list[JoinAnswer] = []
        join(group, request, answers.append, self.clock.time_ms())
        self.shard.after_request(group)
        sync(
            group,
            member_id=answers[0].member_id,
            instance_id=None,
            generation=answers[0].generation,
            protocol_type=None,
            protocol_name=None,
            assignments={answers[0].member_id: b"share"},
            reply=lambda answer: None,
            now_ms=self.clock.time_ms(),
        )
        return answers[0]

    def reload(self) -> Shard:
        shard = self.new_shard()
        load_at_once(self.log, shard)
        return shard
