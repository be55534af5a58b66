"""What a PartitionChange record says."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from milena.controller.rules.leader_choice import Election
from milena.controller.rules.partition_change import (
    RECOVERING,
    ChangeRules,
    PartitionChange,
    PartitionChangeBuilder,
    Targets,
)
from milena.node.metadata.image import NO_LEADER, PartitionImage
from milena.protocol.metadata_records import PartitionChangeRecord
from milena.protocol.types import LeaderEpoch, NodeId, PartitionEpoch

DIRS = tuple(UUID(int=(n + 1) << 70) for n in range(8))


def ids(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(n) for n in numbers)


def partition(
    replicas: tuple[NodeId, ...] = ids(1, 2, 3),
    isr: tuple[NodeId, ...] = ids(1, 2, 3),
    leader: int = 1,
    **more: Any,
) -> PartitionImage:
    directories = tuple(DIRS[r] for r in replicas)
    return PartitionImage(
        replicas, isr, NodeId(leader), LeaderEpoch(4), PartitionEpoch(9), directories=directories, **more
    )


TARGETS = {field.name for field in fields(Targets)}


def change(subject: PartitionImage, alive: tuple[int, ...] = (1, 2, 3), **options: Any) -> dict[str, Any] | None:
    """What changes of ``subject``, by field; ``options`` are targets and rules."""
    targets = Targets(**{name: value for name, value in options.items() if name in TARGETS})
    rules = ChangeRules(**{name: value for name, value in options.items() if name not in TARGETS})
    built = PartitionChangeBuilder(subject, lambda broker: broker in alive, targets, rules).build()
    if built is None:
        return None
    return {name: value for name, value in asdict(built).items() if value is not None}


def test_nothing_to_change_gives_no_record() -> None:
    assert change(partition()) is None


def test_a_leader_that_leaves_the_isr_is_replaced_by_the_next_replica() -> None:
    assert change(partition(), alive=(2, 3), isr=ids(2, 3)) == {"leader": 2, "isr": ids(2, 3)}


def test_a_follower_that_leaves_the_isr_moves_no_leader() -> None:
    assert change(partition(), isr=ids(1, 2)) == {"isr": ids(1, 2)}


def test_before_3_6_a_shrinking_isr_bumps_the_leader_epoch() -> None:
    assert change(partition(), isr=ids(1, 2), bump_on_isr_shrink=True) == {"isr": ids(1, 2), "leader": 1}
    assert change(partition(isr=ids(1)), isr=ids(1, 2), bump_on_isr_shrink=True) == {"isr": ids(1, 2)}


def test_the_last_member_stays_in_the_isr_of_a_leaderless_partition() -> None:
    assert change(partition(isr=ids(1)), alive=(2, 3), isr=()) == {"leader": NO_LEADER}


def test_the_last_member_is_elected_again_with_the_isr_unchanged() -> None:
    assert change(partition(isr=ids(1), leader=-1), alive=(1,)) == {"leader": 1}


def test_an_unclean_election_resets_the_isr_and_marks_the_recovery() -> None:
    got = change(partition(isr=ids(1)), alive=(2, 3), isr=(), election=Election.UNCLEAN)
    assert got == {"leader": 2, "isr": ids(2), "recovery_state": RECOVERING}


def test_with_elr_who_leaves_below_min_isr_stays_eligible() -> None:
    got = change(partition(isr=ids(1, 2)), alive=(1, 3), isr=ids(1), elr_enabled=True, min_isr=2)
    assert got == {"isr": ids(1), "elr": ids(2)}


def test_with_elr_the_isr_may_empty_and_the_last_leader_is_remembered() -> None:
    subject = partition(isr=ids(1), elr=ids(2))
    got = change(subject, alive=(3,), isr=(), elr_enabled=True, min_isr=2)
    assert got == {
        "leader": NO_LEADER,
        "isr": (),
        "elr": ids(1, 2),
        "last_known_elr": ids(1),
    }


def test_with_elr_an_unclean_shutdown_ends_the_eligibility() -> None:
    subject = partition(isr=ids(1), elr=ids(2))
    got = change(subject, alive=(3,), isr=(), elr_enabled=True, min_isr=2, unclean_shutdown=ids(1))
    assert got == {"leader": NO_LEADER, "isr": (), "last_known_elr": ids(1)}


def test_a_leader_from_the_elr_is_alone_in_the_isr() -> None:
    subject = partition(isr=(), elr=ids(2, 3), leader=-1, last_known_elr=ids(1))
    got = change(subject, alive=(2,), elr_enabled=True, min_isr=2)
    assert got == {"leader": 2, "isr": ids(2), "elr": ids(3), "last_known_elr": ()}


def test_without_isr_and_elr_the_last_known_leader_is_taken_uncleanly() -> None:
    subject = partition(isr=(), leader=-1, last_known_elr=ids(3))
    got = change(subject, elr_enabled=True, min_isr=2)
    assert got == {"leader": 3, "isr": ids(3), "recovery_state": RECOVERING, "last_known_elr": ()}


def test_a_reassignment_ends_when_all_added_replicas_are_in_sync() -> None:
    subject = partition(replicas=ids(1, 2, 3), isr=ids(1, 2), removing=ids(1), adding=ids(3))
    assert change(subject) is None
    got = change(subject, isr=ids(1, 2, 3))
    assert got == {
        "leader": 2,
        "isr": ids(2, 3),
        "replicas": ids(2, 3),
        "directories": (DIRS[2], DIRS[3]),
        "removing": (),
        "adding": (),
    }


def test_a_reassignment_that_only_adds_replicas_ends() -> None:
    subject = partition(isr=ids(1, 2), adding=ids(3))
    assert change(subject, isr=ids(1, 2, 3)) == {"isr": ids(1, 2, 3), "adding": ()}


def test_a_reassignment_can_replace_the_only_replica() -> None:
    subject = partition(replicas=ids(1, 2), isr=ids(1), removing=ids(1), adding=ids(2))
    got = change(subject, isr=ids(1, 2))
    assert got is not None
    assert (got["leader"], got["isr"], got["replicas"], got["adding"]) == (2, ids(2), ids(2), ())


def test_a_reassignment_that_removes_no_more_than_it_adds_waits_only_for_the_added_replicas() -> None:
    subject = partition(replicas=ids(1, 2, 3, 4), isr=ids(1, 2, 4), removing=ids(1), adding=ids(4))
    got = change(subject, alive=(1, 2, 3, 4))
    assert got is not None
    assert (got["isr"], got["replicas"]) == (ids(2, 4), ids(2, 3, 4))


def test_a_reassignment_that_removes_more_than_it_adds_waits_for_all_remaining_replicas() -> None:
    assert change(partition(isr=ids(1, 2), removing=ids(1))) is None


def test_an_unclean_election_empties_the_elr_and_ignores_the_target_isr() -> None:
    subject = partition(isr=ids(1, 2), elr=ids(2))
    got = change(subject, alive=(3,), isr=ids(1), election=Election.UNCLEAN, elr_enabled=True, min_isr=3)
    assert got == {"leader": 3, "isr": ids(3), "elr": (), "recovery_state": RECOVERING}


def test_without_elr_the_fields_of_elr_have_no_effect_and_are_emptied() -> None:
    assert change(partition(isr=(), leader=-1, last_known_elr=ids(3))) is None
    assert change(partition(isr=ids(1), elr=ids(2))) == {"elr": ()}


def test_before_3_6_other_changes_do_not_bump_the_leader_epoch() -> None:
    assert change(partition(), bump_on_isr_shrink=True) is None
    assert change(partition(), isr=ids(2, 1, 3), bump_on_isr_shrink=True) == {"isr": ids(2, 1, 3)}
    got = change(partition(), alive=(2, 3), isr=ids(2, 3), bump_on_isr_shrink=True)
    assert got == {"leader": 2, "isr": ids(2, 3)}


def test_a_partition_without_directories_keeps_none() -> None:
    assert change(replace(partition(), directories=()), isr=ids(1, 2)) == {"isr": ids(1, 2)}


def test_losing_a_replica_bumps_the_epoch_of_a_leader_that_stays() -> None:
    subject = partition(isr=ids(1, 2), removing=ids(3))
    got = change(subject)
    assert got is not None
    assert got["leader"] == 1
    assert got["replicas"] == ids(1, 2)


def test_a_directory_is_set_for_one_replica() -> None:
    got = change(partition(), directories={NodeId(2): DIRS[7]})
    assert got == {"directories": (DIRS[1], DIRS[7], DIRS[3])}


def test_a_record_says_only_what_changes() -> None:
    topic = UUID(int=1)
    assert PartitionChange().record(topic, 7) == PartitionChangeRecord(partition_id=7, topic_id=topic)
    change = PartitionChange(leader=NodeId(NO_LEADER), isr=ids(2), elr=())
    assert change.record(topic, 7) == PartitionChangeRecord(
        partition_id=7, topic_id=topic, leader=NO_LEADER, isr=ids(2), eligible_leader_replicas=()
    )


@given(st.data())
def test_without_elr_every_outcome_keeps_the_rules(data: st.DataObject) -> None:
    """A leader is alive and, unless unclean, a member of the new ISR; the ISR never empties."""
    replicas = ids(*range(1, data.draw(st.integers(1, 5)) + 1))
    isr = tuple(data.draw(st.permutations(replicas)))[: data.draw(st.integers(1, len(replicas)))]
    alive = data.draw(st.sets(st.sampled_from(replicas)))
    subject = partition(replicas, isr, leader=data.draw(st.sampled_from([*isr, -1])))
    election = data.draw(st.sampled_from(list(Election)))
    target = tuple(member for member in isr if member in alive)
    got = change(subject, alive=tuple(alive), isr=target, election=election) or {}
    leader, new_isr = got.get("leader", subject.leader), got.get("isr", subject.isr)
    assert new_isr
    if leader == NO_LEADER:
        assert not target
        assert election is not Election.UNCLEAN or not alive
        assert new_isr == subject.isr
    else:
        assert leader in alive
        assert leader in new_isr
        assert (got.get("recovery_state") == RECOVERING) == (leader not in isr)
