"""Chaos runs report anomalies: of clients with wrong outcomes, of readers that skip records, of lost data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from milena.lab.chaos.clients import ChaosConsumer, ChaosMember, ChaosProducer, Clients, Got, Sent
from milena.lab.chaos.faults import Kind
from milena.lab.chaos.groups.client import GroupClient, MemberIdentity
from milena.lab.chaos.groups.workload import kind_of
from milena.lab.chaos.health import NotHealthy
from milena.lab.chaos.journal import HISTORY, TRACE, events, faults
from milena.lab.chaos.moves import Moves
from milena.lab.chaos.own_clients import OwnClients
from milena.lab.chaos.plan import in_rounds
from milena.lab.chaos.runner import Order
from milena.lab.chaos.simulated.place import SimulatedPlace, run_simulated
from milena.lab.chaos.topics import PLAIN
from milena.lab.chaos.verdict import Verdict
from milena.lab.histories.checker import Anomaly, counts
from milena.lab.histories.events import FinalLog, RequestOutcome, Send
from milena.lab.histories.faults import Effect
from milena.lab.histories.group_events import OffsetCommit, OffsetFetch, Settled
from milena.lab.world.trace import quiet_logs
from milena.lab.world.world import World
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
RARELY = 25
"""One of so many outcomes is wrong."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    quiet_logs()


class Liar:
    """A producer that reports a wrong outcome, or sends twice, for each ``RARELY``th record of a topic."""

    def __init__(self, producer: ChaosProducer, topic: str, lie: str) -> None:
        self._producer = producer
        self._topic = topic
        self._lie = lie
        self._sent = 0

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        self._sent += partition[0] == self._topic
        if partition[0] != self._topic or self._sent % RARELY:
            return await self._producer.send(partition, key, value)
        if self._lie == "acknowledged and never sent":
            return Sent(RequestOutcome.OK)
        if self._lie == "sent twice":
            await self._producer.send(partition, key, value)
            return await self._producer.send(partition, key, value)
        sent = await self._producer.send(partition, key, value)
        return Sent(RequestOutcome.FAILED, sent.offset)

    async def close(self) -> None:
        await self._producer.close()


class Unaware:
    """A producer for which the outcome of every record is unknown."""

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        return Sent(RequestOutcome.UNKNOWN)

    async def close(self) -> None: ...


class Skipper:
    """A consumer that drops the first record of every third poll that has several."""

    def __init__(self, consumer: ChaosConsumer) -> None:
        self._consumer = consumer
        self._polls = 0
        self.end_of = consumer.end_of
        self.close = consumer.close

    async def poll(self, seconds: float) -> Sequence[Got]:
        found = await self._consumer.poll(seconds)
        if len(found) < 2:
            return found
        self._polls += 1
        return found[1:] if self._polls % 3 == 0 else found


class Forgetful:
    """A member that reports success for commits that it does not send, after the first three."""

    def __init__(self, member: ChaosMember) -> None:
        self._member = member
        self.poll = member.poll
        self.close = member.close
        self._commits = 0

    @property
    def session(self) -> str:
        return self._member.session

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> RequestOutcome:
        self._commits += 1
        return RequestOutcome.OK if self._commits > 3 else await self._member.commit(offsets)


class Late:
    """A consumer that drops only its very first record, so that its session has no gap."""

    def __init__(self, consumer: ChaosConsumer) -> None:
        self._consumer = consumer
        self._begun = False
        self.end_of = consumer.end_of
        self.close = consumer.close

    async def poll(self, seconds: float) -> Sequence[Got]:
        found = await self._consumer.poll(seconds)
        first, self._begun = not self._begun, self._begun or bool(found)
        return found[1:] if first else found


class Deaf:
    """A consumer that gets no answer to its first request for the end of a partition."""

    def __init__(self, consumer: ChaosConsumer) -> None:
        self._consumer = consumer
        self._asked = False
        self.poll = consumer.poll
        self.close = consumer.close

    async def end_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        first, self._asked = not self._asked, True
        return None if first else await self._consumer.end_of(partition)


class Amnesiac:
    """A member that drops the first record of each session, so that no session has a gap."""

    def __init__(self, member: ChaosMember) -> None:
        self._member = member
        self._last = ""
        self.commit = member.commit
        self.close = member.close

    @property
    def session(self) -> str:
        return self._member.session

    async def poll(self, seconds: float) -> Sequence[Got]:
        found = await self._member.poll(seconds)
        if found and self.session != self._last:
            self._last = self.session
            return [got for got in found if (got.partition, got.offset) != (found[0].partition, found[0].offset)]
        return found


class Weary:
    """A member that reads no more records after some polls."""

    polls = 0

    def __init__(self, member: ChaosMember) -> None:
        self._member = member
        self.commit = member.commit
        self.close = member.close

    @property
    def session(self) -> str:
        return self._member.session

    async def poll(self, seconds: float) -> Sequence[Got]:
        Weary.polls += 1
        found = await self._member.poll(seconds)
        return found if Weary.polls < 10 else ()


class Careless:
    """A member whose commits are acknowledged and lost."""

    def __init__(self, member: ChaosMember) -> None:
        self._member = member
        self.poll = member.poll
        self.close = member.close

    @property
    def session(self) -> str:
        return self._member.session

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> RequestOutcome:
        return RequestOutcome.OK


class Twisted(OwnClients):
    topic = "plain"
    lie = ""
    skips = False
    late = False
    deaf = False
    forgets = False
    shares: Callable[[ChaosMember], ChaosMember] | None = None

    async def producer(self, *, acks: int, idempotent: bool) -> ChaosProducer:
        producer = await super().producer(acks=acks, idempotent=idempotent)
        return Liar(producer, self.topic, self.lie) if self.lie else producer

    async def consumer(self, positions: Mapping[TopicPartition, int]) -> ChaosConsumer:
        consumer = await super().consumer(positions)
        if self.late:
            return Late(consumer)
        if self.deaf:
            return Deaf(consumer)
        return Skipper(consumer) if self.skips else consumer

    async def member(self, group: str, topics: Sequence[str]) -> ChaosMember:
        member = await super().member(group, topics)
        if self.shares is not None:
            return self.shares(member)
        return Forgetful(member) if self.forgets else member


def run_with(kind: type[Twisted], folder: Path) -> Verdict:
    class Place(SimulatedPlace):
        @property
        def clients(self) -> Sequence[Clients]:
            return [kind(self.runtime, self.bootstrap)]

    verdict, _ = run_simulated(Order(1, 3, [Kind.HANG], pace=0.2), folder, Place)
    return verdict


def found(verdict: Verdict) -> set[Anomaly]:
    return set(counts(verdict.violations))


def test_a_correct_client_causes_no_violation(tmp_path: Path) -> None:
    assert not run_with(Twisted, tmp_path).violations


@pytest.mark.parametrize(
    ("topic_", "lie_", "expected"),
    [
        ("plain", "acknowledged and never sent", Anomaly.LOST_WRITE),
        ("tiered", "acknowledged and never sent", Anomaly.LOST_WRITE),
        ("plain", "sent twice", Anomaly.DUPLICATE),
        ("compacted", "sent twice", Anomaly.DUPLICATE),
        ("plain", "sent and said to be refused", Anomaly.ABORTED_READ),
        ("compacted", "sent and said to be refused", Anomaly.VALUE_FROM_NOWHERE),
    ],
)
def test_wrong_outcomes_of_a_producer_are_found(topic_: str, lie_: str, expected: Anomaly, tmp_path: Path) -> None:
    class Lying(Twisted):
        topic = topic_
        lie = lie_

    verdict = run_with(Lying, tmp_path)
    assert expected in found(verdict)
    texts = [one.text for one in verdict.violations if one.anomaly is Anomaly.DUPLICATE]
    if topic_ == "plain":  # a compacted topic may not have the first record any more
        assert all(text.endswith("in the same epoch with another sequence number") for text in texts)


def test_the_verdict_names_a_library_that_has_written_nothing(tmp_path: Path) -> None:
    class Unsure(OwnClients):
        name = "unsure"

        async def producer(self, *, acks: int, idempotent: bool) -> ChaosProducer:
            return Unaware()

    class Place(SimulatedPlace):
        @property
        def clients(self) -> Sequence[Clients]:
            return [OwnClients(self.runtime, self.bootstrap), Unsure(self.runtime, self.bootstrap)]

    verdict, _ = run_simulated(Order(1, 3, [Kind.HANG], pace=0.2), tmp_path, Place)
    assert verdict.idle == ["unsure has written nothing"]


def test_the_verdict_says_that_a_run_had_no_fault(tmp_path: Path) -> None:
    verdict, _ = run_simulated(Order(1, 0, [Kind.HANG], pace=0.2), tmp_path)
    assert "no fault was injected" in verdict.idle


def test_skipped_records_of_a_reader_are_found(tmp_path: Path) -> None:
    class Skipping(Twisted):
        skips = True

    assert {Anomaly.POLL_SKIP, Anomaly.INTERNAL_POLL_SKIP} & found(run_with(Skipping, tmp_path))


def test_a_run_passes_if_only_the_second_request_for_an_end_is_answered(tmp_path: Path) -> None:
    class Asking(Twisted):
        deaf = True

    verdict = run_with(Asking, tmp_path)
    assert not verdict.violations
    assert verdict.idle == []


def test_a_record_that_a_reader_skips_before_its_first_one_is_found(tmp_path: Path) -> None:
    class Beginning(Twisted):
        late = True

    verdict = run_with(Beginning, tmp_path)
    texts = [violation.text for violation in verdict.violations if violation.anomaly is Anomaly.POLL_SKIP]
    assert any(text.startswith("milena/tail has not read") for text in texts)
    assert any(text.startswith("milena/from the start, ") for text in texts)


def test_a_record_that_a_group_skips_between_two_assignments_is_found(tmp_path: Path) -> None:
    class Sharing(Twisted):
        shares = Amnesiac

    violations = run_with(Sharing, tmp_path).violations
    assert {violation.anomaly for violation in violations} == {Anomaly.POLL_SKIP}
    assert all(violation.text.startswith("readers-milena has not read") for violation in violations)


def test_a_group_that_does_not_reach_the_ends_of_its_partitions_fails_the_run(tmp_path: Path) -> None:
    class Sharing(Twisted):
        shares = Weary

    with pytest.raises(ExceptionGroup) as raised:
        run_with(Sharing, tmp_path)
    assert raised.group_contains(NotHealthy, match="readers-milena has read plain-[0-9] up to", depth=None)


def test_a_commit_that_was_never_sent_is_found(tmp_path: Path) -> None:
    class Forgetting(Twisted):
        forgets = True

    assert {Anomaly.COMMIT_BACK, Anomaly.LOST_COMMIT} & found(run_with(Forgetting, tmp_path))


def test_a_lost_commit_is_found_where_no_other_one_follows(tmp_path: Path) -> None:
    """A later commit of the group would hide the loss, because only the last commit is checked."""

    class Losing(Twisted):
        async def member(self, group: str, topics: Sequence[str]) -> ChaosMember:
            member = await super().member(group, topics)
            return Careless(member) if group == "kept-milena-0" else member

    violations = run_with(Losing, tmp_path).violations
    assert {(one.anomaly, one.where) for one in violations} == {(Anomaly.LOST_COMMIT, "kept-milena-0")}


def test_a_lost_commit_of_a_raw_group_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = GroupClient.commit
    commits = 0

    async def forgetting(
        self: GroupClient,
        offsets: Mapping[TopicPartition, tuple[int, str]],
        who: MemberIdentity | None = None,
        *,
        retention: float | None = None,
    ) -> Mapping[TopicPartition, ErrorCode]:
        nonlocal commits
        commits += 1
        if commits % 5:
            return await commit(self, offsets, who, retention=retention)
        at = self._now()
        for partition, (offset, metadata) in offsets.items():
            head = (self.group, "", at, at, RequestOutcome.OK, "", -1)
            self._note(OffsetCommit(*head, partition=partition, offset=offset, metadata=metadata))
        return dict.fromkeys(offsets, ErrorCode.NONE)

    monkeypatch.setattr(GroupClient, "commit", forgetting)
    lost = [one for one in run_with(Twisted, tmp_path).violations if kind_of(one.where)]
    assert {Anomaly.COMMIT_BACK, Anomaly.LOST_COMMIT} & {one.anomaly for one in lost}


def test_offsets_are_read_at_the_end_from_new_coordinators_too(tmp_path: Path) -> None:
    """Every broker that coordinates a group is killed once; each group is read while it is down."""
    killed: list[int] = []

    class Place(SimulatedPlace):
        async def kill(self, node: int) -> None:
            killed.append(node)
            await super().kill(node)

    verdict, _ = run_simulated(Order(1, 3, [Kind.HANG], pace=0.2), tmp_path, Place)
    assert not verdict.violations
    assert verdict.idle == []
    assert killed and len(killed) == len(set(killed))
    read = [event for event in events(tmp_path / HISTORY) if isinstance(event, OffsetFetch)]
    (settled,) = (event.at for event in events(tmp_path / HISTORY) if isinstance(event, Settled))
    last = {(event.group, event.node) for event in read if event.begun > settled and kind_of(event.group)}
    assert len(last) > len({group for group, _ in last}), "no group was read from two coordinators"


class WipesAll(SimulatedPlace):
    """A place where all brokers lose their disks at once."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._others: list[int] = []

    async def wipe(self, node: int) -> None:
        self._others = [other for other in self.brokers if other != node]
        for other in self._others:
            await self.kill(other)
        for broker in self.brokers:
            await super().wipe(broker)

    async def start(self, node: int) -> None:
        for other in self._others:
            await super().start(other)
        await super().start(node)


def test_lost_writes_are_found_if_all_brokers_lose_their_disks(tmp_path: Path) -> None:
    verdict, _ = run_simulated(Order(1, 3, [Kind.WIPE], pace=0.2), tmp_path, WipesAll)
    lost = counts(verdict.violations)
    assert lost[Anomaly.LOST_WRITE]
    assert {violation.where.rpartition("-")[0] for violation in verdict.violations} >= {"plain", "compacted"}


def test_settings_without_promises_lose_records(tmp_path: Path) -> None:
    verdict, _ = run_simulated(Order(1, 25, unsafe=True, pace=0.3), tmp_path)
    assert not verdict.violations
    assert not verdict.blind
    assert {one.where.rpartition("-")[0] for one in verdict.controls} == {"weak", "loose"}
    assert {topic: min(losses.values()) > 0 for topic, losses in verdict.losses.items()} == {
        "weak": True,
        "loose": True,
    }
    doomed = {fault.kind: {topic for topic, _ in fault.doomed} for fault in faults(tmp_path / HISTORY)}
    assert (doomed[Kind.ISOLATE], doomed[Kind.UNCLEAN]) == ({"weak"}, {"loose"})


def test_lost_objects_of_the_tier_cause_holes_and_no_violation(tmp_path: Path) -> None:
    verdict, _ = run_simulated(Order(1, 10, [Kind.LOST_OBJECTS], pace=0.2), tmp_path)
    assert not verdict.violations
    logs = [event for event in events(tmp_path / HISTORY) if isinstance(event, FinalLog)]
    assert any(log.holes for log in logs)


def test_a_hole_that_no_lost_object_explains_fails_the_run(tmp_path: Path) -> None:
    class Silent(SimulatedPlace):
        async def lost_objects(self) -> Sequence[str]:
            return ()

    with pytest.raises(ExceptionGroup) as raised:
        run_simulated(Order(1, 10, [Kind.LOST_OBJECTS], pace=0.2), tmp_path, Silent)
    assert raised.group_contains(KafkaError, match="cannot be read from offset", depth=None)


def test_a_lost_object_explains_no_hole_in_later_segments(tmp_path: Path) -> None:
    """The place reports only the first lost object of each partition."""

    class First(SimulatedPlace):
        async def lost_objects(self) -> Sequence[str]:
            found: dict[str, str] = {}
            for path in sorted(await super().lost_objects()):
                found.setdefault(path.rpartition("/")[0], path)
            return list(found.values())

    with pytest.raises(ExceptionGroup) as raised:
        run_simulated(Order(1, 20, [Kind.LOST_OBJECTS], pace=0.2), tmp_path, First)
    assert raised.group_contains(KafkaError, match="cannot be read from offset", depth=None)


NOTHING: dict[Kind, str] = {
    Kind.KILL: "kill",
    Kind.STOP: "pause",
    Kind.HANG: "pause",
    Kind.RESTART: "shut_down",
    Kind.ISOLATE: "cut",
    Kind.CUT_CONTROLLER: "cut",
    Kind.CUT_FOLLOWERS: "cut",
    Kind.CUT_ONE_WAY: "cut",
    Kind.WIPE: "wipe",
    Kind.POWER_LOSS: "power_off",
    Kind.FULL_DISK: "fill_disk",
    Kind.LOST_DIRECTORY: "fail_directory",
    Kind.SLOW_DISK: "slow_disk",
    Kind.TIER_AWAY: "break_tier",
    Kind.SLOW_OBJECTS: "break_tier",
    Kind.LOST_OBJECTS: "break_tier",
    Kind.CONTROLLER: "kill",
    Kind.CLOCK: "jump_clock",
    Kind.ROLLING: "shut_down",
}
"""The method of a place that makes each kind of fault. REASSIGN and UNCLEAN have tests of their own below."""
OF_FILES = {Kind.TIER_UNMOUNTED, Kind.ODD_TIER}
"""The simulation replaces files of the tier for them, which no node can report."""


def test_every_kind_of_fault_has_a_test_with_a_place_that_does_nothing() -> None:
    assert {*NOTHING, *OF_FILES, Kind.REASSIGN, Kind.UNCLEAN} == set(filter(in_rounds, Kind))


async def _nothing(*_: object, **__: object) -> None: ...


@pytest.mark.parametrize("kind", NOTHING, ids=lambda kind: kind.value)
def test_a_fault_that_is_not_carried_out_fails_the_run(kind: Kind, tmp_path: Path) -> None:
    class Idle(SimulatedPlace):
        """A place whose method for this kind of fault does nothing."""

    setattr(Idle, NOTHING[kind], _nothing)
    verdict, _ = run_simulated(Order(1, 4, [kind], pace=0.3), tmp_path, Idle)
    (reported,) = verdict.idle
    assert reported.startswith(f"{kind.value} was injected") and reported.endswith("no node has noticed it")
    assert {fault.effect for fault in faults(tmp_path / HISTORY)} == {Effect.NOT_SEEN}
    assert "no node noticed it" in (tmp_path / TRACE).read_text()


def test_a_fault_that_was_not_carried_out_does_not_count(tmp_path: Path) -> None:
    class Unused(SimulatedPlace):
        """Its tier is never used."""

        async def _is_used(self) -> bool:
            return False

    verdict, _ = run_simulated(Order(1, 4, [Kind.TIER_UNMOUNTED], pace=0.3), tmp_path, Unused)
    assert verdict.idle == ["no fault was injected"]
    assert {fault.effect for fault in faults(tmp_path / HISTORY)} == {Effect.OMITTED}


def test_replicas_that_do_not_move_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moves, "_move", _nothing)
    verdict, _ = run_simulated(Order(1, 4, [Kind.REASSIGN], pace=0.3), tmp_path)
    (reported,) = verdict.idle
    assert reported.startswith("reassign was injected") and reported.endswith("no node has noticed it")


def test_a_broker_that_stays_in_sync_fails_an_unclean_election(tmp_path: Path) -> None:
    class Idle(SimulatedPlace):
        async def kill(self, node: int) -> None: ...

    with pytest.raises(ExceptionGroup) as raised:
        run_simulated(Order(1, 4, [Kind.UNCLEAN], pace=0.3), tmp_path, Idle)
    assert raised.group_contains(NotHealthy, match="is in the ISR of", depth=None)


def test_nodes_notice_the_faults_that_are_carried_out(tmp_path: Path) -> None:
    verdict, _ = run_simulated(Order(2, 75, pace=1.0), tmp_path)
    assert not verdict.idle
    assert not verdict.violations
    reported = list(faults(tmp_path / HISTORY))
    assert len({fault.kind for fault in reported if fault.effect is Effect.SEEN}) >= 8


def test_a_reader_does_not_wait_long_for_a_host_without_power(tmp_path: Path) -> None:
    verdict, _ = run_simulated(Order(2, 5, [Kind.POWER_LOSS], pace=0.3), tmp_path)
    assert not verdict.violations


def test_a_cluster_that_recovers_too_late_is_a_violation(tmp_path: Path) -> None:
    class Apart(SimulatedPlace):
        async def heal_links(self) -> None:
            async def later() -> None:
                await self.runtime.clock.sleep(30.0)
                await SimulatedPlace.heal_links(self)

            self._later = asyncio.ensure_future(later())

        async def cut(self, sender: int, receiver: int) -> None:
            """Cut all links between brokers, so that no broker accepts writes."""
            for one in self.brokers:
                for other in self.brokers:
                    await super().cut(one, other)

    verdict, _ = run_simulated(Order(1, 4, [Kind.CUT_FOLLOWERS], pace=0.3), tmp_path, Apart)
    assert Anomaly.NOT_RECOVERED in found(verdict)


def test_the_next_fault_begins_when_all_partitions_accept_writes_again(tmp_path: Path) -> None:
    run_simulated(Order(3, 20, [Kind.STOP, Kind.KILL, Kind.ISOLATE], pace=0.3), tmp_path)
    reported = list(faults(tmp_path / HISTORY))
    writes = [one for one in events(tmp_path / HISTORY) if isinstance(one, Send) and one.acks == -1]
    for before, after in pairwise(reported):
        if after.begun >= before.mended:
            between = [one for one in writes if before.mended <= one.ended <= after.begun]
            assert {one.partition for one in between if one.outcome is RequestOutcome.OK} >= set(PLAIN.places)
