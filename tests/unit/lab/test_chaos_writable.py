"""Which partitions must take writes while a fault lasts."""

from __future__ import annotations

import pytest

from milena.lab.chaos.faults import Kind, Shape, Step
from milena.lab.chaos.plan import within
from milena.lab.chaos.writable import Replicas, effect_of, must_be_writable, recovers

CONTROLLER = 100
SHAPE = Shape([1, 2, 3], CONTROLLER, session=3.0, lag=5.0)
PLACE = ("topic", 0)


def writable(steps: list[Step], leader: int, isr: list[int], min_isr: int = 2) -> bool:
    partition = Replicas(leader, tuple(isr), min_isr)
    return must_be_writable([effect_of(step, SHAPE) for step in steps], {PLACE: partition}) == (PLACE,)


def fault(kind: Kind, *nodes: int) -> Step:
    return Step(kind, nodes, 5.0)


AWAY = [
    Kind.KILL,
    Kind.STOP,
    Kind.RESTART,
    Kind.ISOLATE,
    Kind.CUT_CONTROLLER,
    Kind.WIPE,
    Kind.POWER_LOSS,
    Kind.FULL_DISK,
]


@pytest.mark.parametrize("kind", AWAY)
@pytest.mark.parametrize("node", [1, 2])
def test_a_partition_stays_writable_without_one_broker_if_min_isr_allows(kind: Kind, node: int) -> None:
    assert writable([fault(kind, node)], leader=1, isr=[1, 2, 3])
    assert not writable([fault(kind, node)], leader=1, isr=[1, 2])
    assert writable([fault(kind, node)], leader=1, isr=[1, 2], min_isr=1)
    assert writable([fault(kind, node)], leader=3, isr=[3, 4])


@pytest.mark.parametrize(
    ("kind", "nodes", "leader", "isr", "expected"),
    [
        # the replica that hangs stays in the ISR until it answers again
        (Kind.HANG, (1,), 2, [1, 2, 3], False),
        (Kind.HANG, (1,), 2, [2, 3], True),
        # followers leave the ISR of partitions that the broker leads; the broker leaves that of the others
        (Kind.CUT_FOLLOWERS, (1,), 1, [1, 2, 3], False),
        (Kind.CUT_FOLLOWERS, (1,), 2, [1, 2, 3], True),
        (Kind.CUT_FOLLOWERS, (1,), 2, [1, 2], False),
        # the broker at one end leaves the ISR of the broker at the other end
        (Kind.CUT_ONE_WAY, (1, 2), 1, [1, 2, 3], True),
        (Kind.CUT_ONE_WAY, (1, 2), 2, [1, 2], False),
        (Kind.CUT_ONE_WAY, (1, 2), 3, [1, 2, 3], True),
        (Kind.CUT_ONE_WAY, (1, CONTROLLER), 1, [1, 2, 3], True),
        (Kind.CUT_ONE_WAY, (CONTROLLER, 1), 1, [1, 2], False),
        # no replica leaves an ISR
        (Kind.CONTROLLER, (CONTROLLER,), 1, [1, 2, 3], True),
        (Kind.CONTROLLER, (CONTROLLER,), 1, [1, 2], True),
        (Kind.CONTROLLER, (CONTROLLER,), 1, [1], False),
        (Kind.CLOCK, (1,), 1, [1, 2], True),
        (Kind.SLOW_DISK, (1,), 1, [1, 2], True),
        (Kind.TIER_AWAY, (), 1, [1, 2], True),
        (Kind.SLOW_OBJECTS, (), 1, [1, 2], True),
        (Kind.LOST_OBJECTS, (), 1, [1, 2], True),
        (Kind.REASSIGN, (), 1, [1, 2], True),
        # the nodes restart one after the other
        (Kind.ROLLING, (1, 2, 3, CONTROLLER), 1, [1, 2, 3], True),
        (Kind.ROLLING, (1, 2, 3, CONTROLLER), 1, [1, 2], False),
        (Kind.UNCLEAN, (1, 2, 3), 1, [1, 2, 3], False),
        # without a leader the partition need not be writable
        (Kind.CLOCK, (1,), -1, [1, 2], False),
    ],
)
def test_during_one_fault_a_partition_must_be_writable_if_enough_replicas_remain(
    kind: Kind, nodes: tuple[int, ...], leader: int, isr: list[int], expected: bool
) -> None:
    assert writable([fault(kind, *nodes)], leader, isr) is expected


@pytest.mark.parametrize(
    ("steps", "leader", "isr", "expected"),
    [
        ([fault(Kind.KILL, 1), fault(Kind.STOP, 2)], 3, [1, 2, 3], False),
        ([fault(Kind.KILL, 1), fault(Kind.STOP, 2)], 3, [1, 3, 4], True),
        # no controller removes the unavailable replica from the ISR or elects another leader
        ([fault(Kind.KILL, 1), fault(Kind.CONTROLLER, CONTROLLER)], 2, [1, 2, 3], False),
        ([fault(Kind.KILL, 1), fault(Kind.CONTROLLER, CONTROLLER)], 2, [2, 3], True),
        ([fault(Kind.CUT_FOLLOWERS, 1), fault(Kind.CONTROLLER, CONTROLLER)], 2, [1, 2, 3], False),
        ([fault(Kind.CUT_ONE_WAY, 1, 2), fault(Kind.CONTROLLER, CONTROLLER)], 3, [1, 2, 3], True),
        # the next leader may be one of the two that do not reach each other
        ([fault(Kind.CUT_ONE_WAY, 1, 2), fault(Kind.KILL, 3)], 3, [1, 2, 3], False),
        ([fault(Kind.CUT_FOLLOWERS, 1), fault(Kind.KILL, 2)], 2, [1, 2, 3], False),
        ([fault(Kind.KILL, 1), fault(Kind.TIER_AWAY)], 1, [1, 2, 3], True),
        # the reassignment may choose the unavailable broker
        ([fault(Kind.KILL, 1), fault(Kind.REASSIGN)], 2, [2, 3], False),
        ([fault(Kind.CONTROLLER, CONTROLLER), fault(Kind.REASSIGN)], 2, [1, 2, 3], True),
    ],
)
def test_during_two_faults_a_partition_must_be_writable_if_enough_replicas_remain(
    steps: list[Step], leader: int, isr: list[int], expected: bool
) -> None:
    assert writable(steps, leader, isr) is expected


def test_the_allowed_time_covers_the_session_timeout_or_the_replica_lag() -> None:
    assert within(fault(Kind.KILL, 1), SHAPE) > SHAPE.session
    assert within(fault(Kind.CUT_FOLLOWERS, 1), SHAPE) > 1.5 * SHAPE.lag
    assert within(fault(Kind.CONTROLLER, CONTROLLER), SHAPE) < within(fault(Kind.KILL, 1), SHAPE)
    assert recovers(SHAPE) > SHAPE.session
