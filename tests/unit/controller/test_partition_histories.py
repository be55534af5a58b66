"""Random histories of brokers and one partition keep the invariants, and agree with a dumb model where ELR is off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import example, given
from hypothesis import strategies as st

from milena.controller.commands.alter_partition import Proposal, alter_partitions
from milena.controller.commands.leader_elections import ElectionType, balance, elect_leaders, elect_unclean
from milena.controller.commands.reassignment import Target, alter_reassignments
from milena.node.metadata.image import PartitionImage
from milena.protocol.errors import ErrorCode
from milena.protocol.metadata_records import ConfigRecord, PartitionChangeRecord
from milena.protocol.types import NodeId
from tests.unit.controller.cluster import Cluster

BROKERS: Final = (1, 2, 3, 4)
REPLICAS: Final = (1, 2, 3)
ELR: Final = "eligible.leader.replicas.version"

broker = st.sampled_from(BROKERS)
isr = st.lists(broker, min_size=1, max_size=3, unique=True)
step = st.one_of(
    st.tuples(st.sampled_from(["fence", "unfence", "stop", "restart", "restart cleanly"]), broker),
    st.tuples(st.just("alter"), isr),
    st.tuples(st.just("alter stale"), isr),
    st.tuples(st.sampled_from(["preferred", "unclean"]), st.just(0)),
)
reassigning = st.one_of(
    step,
    st.tuples(st.just("reassign"), st.lists(broker, min_size=1, max_size=4, unique=True)),
    st.tuples(st.sampled_from(["cancel", "balance", "sweep"]), st.just(0)),
)

CALLED_BACK: Final = [("fence", 2), ("fence", 3), ("fence", 4), ("stop", 1), ("fence", 1), ("unfence", 1)]
"""The last in-sync replica begins to stop, is fenced, and is unfenced again without another incarnation. Its
registration still says that it stops, so it is not active; Kafka 4.3 (handleBrokerUnfenced) elects it nevertheless."""


class History:
    """Carries steps out, and looks at what each of them did to the partition."""

    def __init__(self, *, elr: bool = False, unclean: bool = False) -> None:
        self.cluster = Cluster(len(BROKERS), features={ELR: int(elr)})
        self.runs = dict.fromkeys(BROKERS, 0)
        self.elr = elr
        self.unclean = unclean
        if elr:
            self.configure(4, "", "min.insync.replicas", "2")
        self.cluster.assign_topic(*REPLICAS)
        if unclean:
            self.configure(2, "t", "unclean.leader.election.enable", "true")

    def configure(self, kind: int, resource: str, name: str, value: str) -> None:
        self.cluster.write([ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)])

    @property
    def partition(self) -> PartitionImage:
        return self.cluster.partition()

    def active(self) -> set[int]:
        return {b.id for b in self.cluster.state.image.brokers.values() if b.active}

    def fenced(self, number: int) -> bool:
        return self.cluster.state.image.brokers[number].fenced

    def take(self, action: str, argument: Any) -> None:
        before, written = self.partition, len(self.records())
        self.cluster.now += 1
        self.carry_out(action, argument)
        self.check(before, self.records()[written:])

    def records(self) -> list[PartitionChangeRecord]:
        return self.cluster.changes

    def carry_out(self, action: str, argument: Any) -> None:
        cluster = self.cluster
        match action:
            case "fence":
                cluster.beat(argument, want_fence=True)
            case "unfence":
                cluster.beat(argument)
            case "stop":
                cluster.beat(argument, want_shutdown=True)
            case "restart" | "restart cleanly":
                self.restart(argument, clean=action == "restart cleanly")
            case "alter" | "alter stale":
                self.alter(argument, stale=action == "alter stale")
            case "preferred" | "unclean":
                kind = ElectionType.PREFERRED if action == "preferred" else ElectionType.UNCLEAN
                cluster.commit(elect_leaders(cluster.state, kind, None))
            case "balance":
                cluster.commit(balance(cluster.state))
            case "sweep":
                cluster.commit(elect_unclean(cluster.state))
            case _:
                target = Target(0, None if action == "cancel" else [NodeId(b) for b in argument])
                cluster.commit(alter_reassignments(cluster.state, [("t", [target])]))

    def restart(self, number: int, *, clean: bool) -> None:
        former = self.cluster.state.image.brokers[number].epoch
        self.cluster.state.sessions.end(number, former)
        self.runs[number] += 1
        self.cluster.register(number, run=self.runs[number], previous_epoch=former if clean else -1)

    def alter(self, members: Sequence[int], *, stale: bool) -> None:
        """By the leader, with the epochs that are right; ``stale``: the last member's is of another incarnation."""
        present, state = self.partition, self.cluster.state
        if present.leader == -1:
            return
        brokers = state.image.brokers
        epochs = {member: int(brokers[member].epoch) for member in members}
        if stale:
            epochs[members[-1]] -= 1
        proposal = Proposal(
            partition=0,
            leader_epoch=present.leader_epoch,
            partition_epoch=present.partition_epoch,
            isr=tuple((NodeId(member), epochs[member]) for member in members),
        )
        request = [(state.image.topics["t"].id, [proposal])]
        sender = present.leader
        ((_, (outcome,)),) = self.cluster.commit(alter_partitions(state, sender, brokers[sender].epoch, request))
        valid = set(members) <= set(present.replicas) and sender in members
        eligible = set(members) <= self.active() and not stale
        if not valid:
            assert outcome.code is ErrorCode.INVALID_REQUEST
        elif not eligible:
            assert outcome.code is ErrorCode.INELIGIBLE_REPLICA
        else:
            assert outcome.code in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)

    def check(self, before: PartitionImage, changes: Sequence[PartitionChangeRecord]) -> None:
        now, active = self.partition, self.active()
        assert len(set(now.replicas)) == len(now.replicas) > 0
        assert set(now.adding) | set(now.removing) <= set(now.replicas)
        assert len(set(now.isr)) == len(now.isr)
        assert set(now.isr) <= set(now.replicas)
        if now.leader == -1:
            assert not set(now.isr) & active, "who is in sync and active leads"
        else:
            assert now.leader in now.isr
            assert now.leader in now.replicas
            assert set(now.isr) <= active or (now.isr == (now.leader,) and not self.fenced(now.leader))
        if self.elr:
            assert not set(now.isr) & set(now.elr)
            assert not now.elr or len(now.isr) < 2
        else:
            assert now.isr
            assert now.elr == ()
        assert now.partition_epoch == before.partition_epoch + len(changes)
        elections = sum(change.leader != -2 for change in changes)
        assert now.leader_epoch == before.leader_epoch + elections
        if now.leader != before.leader or not set(before.replicas) <= set(now.replicas):
            assert elections
        elif len(changes) == 1:
            assert not elections, "only another leader, or replicas that have gone, make an epoch"


@given(st.booleans(), st.booleans(), st.lists(reassigning, min_size=15, max_size=40))
@example(False, False, CALLED_BACK)
@example(True, False, CALLED_BACK)
def test_after_any_history(elr: bool, unclean: bool, steps: list[tuple[str, Any]]) -> None:
    history = History(elr=elr, unclean=unclean)
    for action, argument in steps:
        history.take(action, argument)


@dataclass
class Model:
    """One partition on brokers 1, 2, 3, by the words of docs/kafka-semantics.md: AlterPartition, Broker lifecycle,
    Partition changes."""

    isr: list[int] = field(default_factory=lambda: list(REPLICAS))
    leader: int = 1
    leader_epoch: int = 0
    fenced: set[int] = field(default_factory=set)
    stopping: set[int] = field(default_factory=set)
    """In controlled shutdown by their registration, which only another incarnation takes back."""
    stopped_at: dict[int, int] = field(default_factory=dict)
    """Steps in which the brokers that wait for the end of their controlled shutdown began it."""
    heard_at: dict[int, int] = field(default_factory=lambda: dict.fromkeys(BROKERS, 0))
    step: int = 0

    @property
    def up(self) -> set[int]:
        return set(BROKERS) - self.fenced - self.stopping

    def elect(self, leader: int, isr: list[int] | None = None) -> None:
        if isr:
            self.isr = isr
        if leader != self.leader:
            self.leader = leader
            self.leader_epoch += 1

    def best(self, isr: Sequence[int], able: set[int]) -> int:
        """The leader stays; else the first replica that is in sync and able to lead."""
        return next((r for r in (self.leader, *REPLICAS) if r in isr and r in able), -1)

    def beat(self, number: int, wish: str) -> None:
        self.heard_at[number] = self.step
        if number in self.fenced:
            if wish == "unfence":
                self.join(number)
        elif number in self.stopped_at:
            others = set(BROKERS) - self.fenced - set(self.stopped_at)
            heard = all(self.heard_at[other] > self.stopped_at[number] for other in others)
            if self.leader != number and heard:
                self.fence(number)
        elif wish == "fence" or (wish == "stop" and self.leader != number):
            self.fence(number)
        elif wish == "stop":
            self.stopping.add(number)
            self.stopped_at[number] = self.step
            self.leave(number)

    def fence(self, number: int) -> None:
        self.fenced.add(number)
        self.stopped_at.pop(number, None)
        self.leave(number)

    def restart(self, number: int) -> None:
        self.stopping.discard(number)
        self.fence(number)

    def leave(self, number: int) -> None:
        if number in self.isr:
            rest = [member for member in self.isr if member != number]
            self.elect(self.best(rest, self.up - {number}), rest)

    def join(self, number: int) -> None:
        """As in Kafka it may lead although it had begun to stop before it was fenced."""
        self.fenced.discard(number)
        if self.leader == -1:
            self.elect(self.best(self.isr, self.up | {number}))

    def alter(self, isr: list[int]) -> None:
        if self.leader != -1 and self.leader in isr and set(isr) <= set(REPLICAS) & self.up:
            self.isr = isr

    def prefer(self) -> None:
        """As in Kafka this removes a leader that is not active, even if no other replica can be elected."""
        first = REPLICAS[0]
        if self.leader != first:
            self.elect(first if first in self.isr and first in self.up else self.best(self.isr, self.up))

    def force(self) -> None:
        if self.leader == -1:
            leader = next((r for r in REPLICAS if r in self.up), -1)
            self.elect(leader, [leader] if leader != -1 else None)


@given(st.lists(step, min_size=15, max_size=40))
@example(CALLED_BACK)
@example([("fence", 1), ("fence", 2), ("fence", 4), ("stop", 3), ("fence", 3), ("unfence", 3), ("preferred", 0)])
def test_a_dumb_model_agrees(steps: list[tuple[str, Any]]) -> None:
    history, model = History(), Model()
    for number, (action, argument) in enumerate(steps, start=1):
        model.step = number
        history.take(action, argument)
        match action:
            case "fence" | "stop" | "unfence":
                model.beat(argument, action)
            case "restart" | "restart cleanly":
                model.restart(argument)
            case "alter":
                model.alter(list(argument))
            case "preferred":
                model.prefer()
            case "unclean":
                model.force()
        now = history.partition
        assert (list(now.isr), now.leader, now.leader_epoch) == (model.isr, model.leader, model.leader_epoch)
        assert model.up == history.active()
