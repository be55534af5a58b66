"""Who is elected, cleanly or not."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from milena.controller.rules.leader_choice import Candidates, Elected, Election, acceptance, initial_isr
from milena.node.metadata.image import NO_LEADER, BrokerImage, PartitionImage
from milena.protocol.types import LOST_DIR, BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch

A_DIR = UUID(int=1 << 70)


def ids(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(n) for n in numbers)


def candidates(
    isr: tuple[NodeId, ...], *, leader: int = 1, elr: tuple[NodeId, ...] = (), last: int | None = None
) -> Candidates:
    return Candidates(ids(1, 2, 3), NodeId(leader), isr, elr, None if last is None else NodeId(last))


@pytest.mark.parametrize(
    ("election", "subject", "alive", "expected"),
    [
        (Election.ONLINE, candidates(ids(1, 2, 3), leader=2), (1, 2, 3), Elected(NodeId(2))),
        (Election.PREFERRED, candidates(ids(1, 2, 3), leader=2), (1, 2, 3), Elected(NodeId(1))),
        (Election.PREFERRED, candidates(ids(2, 3), leader=3), (1, 2, 3), Elected(NodeId(3))),
        (Election.PREFERRED, candidates(ids(2, 3), leader=-1), (1, 2, 3), Elected(NodeId(2))),
        (Election.ONLINE, candidates(ids(2, 3), leader=1), (1, 3), Elected(NodeId(3))),
        (Election.ONLINE, candidates(ids(2), leader=2), (1, 3), Elected(NO_LEADER)),
        (Election.UNCLEAN, candidates(ids(2), leader=2), (1, 3), Elected(NodeId(1), unclean=True)),
        (Election.UNCLEAN, candidates(ids(2), leader=2), (2, 3), Elected(NodeId(2))),
        (Election.ONLINE, candidates((), leader=-1, elr=ids(3, 2)), (2, 3), Elected(NodeId(2))),
        (Election.ONLINE, candidates(ids(1), leader=-1, elr=ids(3, 2)), (2, 3), Elected(NO_LEADER)),
        (Election.ONLINE, candidates((), leader=-1, last=3), (2, 3), Elected(NodeId(3), unclean=True)),
        (Election.ONLINE, candidates((), leader=-1, last=4), (2, 3, 4), Elected(NO_LEADER)),
        (Election.ONLINE, candidates((), leader=-1, last=3), (1, 2), Elected(NO_LEADER)),
        (Election.ONLINE, candidates((), leader=-1, elr=ids(1), last=3), (2, 3), Elected(NO_LEADER)),
    ],
)
def test_the_order_of_preference(
    election: Election, subject: Candidates, alive: tuple[int, ...], expected: Elected
) -> None:
    assert subject.elect(election, lambda broker: broker in alive) == expected


def broker(
    number: int, *, fenced: bool = False, stopping: bool = False, dirs: tuple[UUID, ...] = (A_DIR,)
) -> BrokerImage:
    return BrokerImage(NodeId(number), BrokerEpoch(5), UUID(int=7), (), {}, None, fenced, stopping, log_dirs=dirs)


def partition(directory: UUID = A_DIR) -> PartitionImage:
    return PartitionImage(ids(1), ids(1), NodeId(1), LeaderEpoch(0), PartitionEpoch(0), directories=(directory,))


@pytest.mark.parametrize(
    ("registered", "placed", "may_lead"),
    [
        (broker(1), partition(), True),
        (broker(1, fenced=True), partition(), False),
        (broker(1, stopping=True), partition(), False),
        (broker(1, dirs=(UUID(int=1 << 71),)), partition(), False),
        (broker(1), partition(LOST_DIR), False),
        (broker(2), partition(), False),
        (broker(1), replace(partition(), directories=()), True),
    ],
)
def test_a_leader_is_registered_active_and_has_its_directory(
    registered: BrokerImage, placed: PartitionImage, may_lead: bool
) -> None:
    assert acceptance({registered.id: registered}, placed)(NodeId(1)) is may_lead


def test_a_broker_that_joins_counts_as_active_and_one_that_leaves_as_gone() -> None:
    brokers = {1: broker(1, fenced=True), 2: broker(2)}
    assert acceptance(brokers, partition(), joining=NodeId(1))(NodeId(1))
    assert not acceptance(brokers, partition(), leaving=ids(2))(NodeId(2))


def test_a_replica_that_is_moved_is_looked_for_in_its_new_directory() -> None:
    """The image still shows the old one."""
    brokers, other = {1: broker(1)}, UUID(int=1 << 71)
    assert acceptance(brokers, partition(other), moved={NodeId(1): A_DIR})(NodeId(1))
    assert not acceptance(brokers, partition(), moved={NodeId(1): other})(NodeId(1))


def test_a_new_partition_is_in_sync_on_all_active_replicas() -> None:
    assert initial_isr(ids(3, 1, 2)) == ids(3, 1, 2)
    assert initial_isr(()) == ()
