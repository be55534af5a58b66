"""The checker of histories: what it lets pass, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lab.history import Commit, Ending, History, Outcome, Seen, Stored, TopicChange, Write, violations

PARTITION = ("t", 0)


def written(number: int, *, offset: int | None = None, outcome: Outcome = Outcome.OK, at: float | None = None) -> Write:
    """Record ``number``, at the offset of the same number."""
    sent_at = float(number) if at is None else at
    found = (number if offset is None else offset) if outcome is Outcome.OK else -1
    return Write(PARTITION, number, b"%d" % number, sent_at, sent_at + 0.5, outcome, found)


def log_of(*numbers: int, start: int = 0) -> list[Stored]:
    return [Stored(start + index, b"%d" % number, 0) for index, number in enumerate(numbers)]


def found(
    writes: list[Write],
    log: list[Stored],
    *,
    losses: list[float] | None = None,
    seen: list[Seen] | None = None,
    synced: bool = False,
) -> list[str]:
    history = History(writes, seen or [], power_losses=[(at, 1) for at in losses or []])
    topics = frozenset(("t",)) if synced else frozenset[str]()
    return violations(history, Ending({PARTITION: log}, {PARTITION: 1}, topics, {}, {}))


def test_what_was_acknowledged_and_is_there_is_right() -> None:
    assert found([written(0), written(1), written(2)], log_of(0, 1, 2)) == []


def test_a_lost_record_is_found() -> None:
    assert found([written(0), written(1)], log_of(0)) == ["t-0: b'1' was acknowledged at 1, where None is"]


def test_a_power_loss_excuses_what_was_sent_before_it_and_only_that() -> None:
    assert found([written(0), written(1)], log_of(0), losses=[2.0]) == []
    assert found([written(0), written(1)], log_of(0), losses=[0.9]) != []
    assert found([written(0), written(1)], log_of(0), losses=[2.0], synced=True) != []


def test_a_power_loss_takes_the_end_of_a_log_and_not_its_middle() -> None:
    writes = [written(0), written(1), written(2), written(3, outcome=Outcome.UNKNOWN)]
    assert found(writes, log_of(0, 3, 2), losses=[9.0]) == ["t-0: b'1' is lost, but b'2', which followed it, is not"]
    after = written(2, offset=1)
    assert found([written(0), written(1), after], log_of(0, 2), losses=[1.9]) == []


def test_records_out_of_nowhere_twice_or_out_of_order_are_found() -> None:
    assert found([written(0)], log_of(0, 7)) == ["t-0: b'7' at 1 was never sent"]
    assert found([written(0)], log_of(0, 0)) == ["t-0: b'0' is at 1 again"]
    swapped = [written(0, offset=1), written(1, offset=0)]
    assert found(swapped, log_of(1, 0)) == ["t-0: b'0' at 1 is out of order"]


def test_an_unknown_outcome_may_be_there_or_not_and_late() -> None:
    writes = [written(0, outcome=Outcome.UNKNOWN), written(1, offset=0)]
    assert found(writes, log_of(1)) == []
    assert found(writes, log_of(1, 0)) == []


def test_a_refused_record_must_not_be_there() -> None:
    assert found([written(0, outcome=Outcome.FAILED)], log_of(0)) == ["t-0: b'0' at 0 had been refused"]


def test_gaps_and_falling_epochs_are_found() -> None:
    log = [Stored(0, b"0", 3), Stored(2, b"1", 2)]
    texts = found([written(0), written(1, offset=2)], log)
    assert texts == ["t-0: offset 2 follows 0", "t-0: leader epoch 2 at 2 follows 3"]


def test_what_a_reader_saw_stays() -> None:
    seen = [Seen(PARTITION, 0, b"1")]
    unknown = written(1, outcome=Outcome.UNKNOWN)
    assert found([written(0), unknown], log_of(0), seen=seen) == ["t-0: b'1' was read at 0, where b'0' is"]
    lost = [written(1, offset=0), written(2, offset=0)]
    assert found(lost, log_of(2), seen=seen, losses=[1.9]) == []


CREATED = TopicChange("made", True, Outcome.OK, {"retention.ms": "1"})
DELETED = TopicChange("made", False, Outcome.OK)


@pytest.mark.parametrize(
    ("changes", "existing", "texts"),
    [
        ([CREATED], {"made": {"retention.ms": "1"}}, []),
        ([CREATED], {}, ["topic made: it should exist"]),
        ([CREATED], {"made": {}}, ["topic made has {}, it was created with {'retention.ms': '1'}"]),
        ([CREATED, DELETED], {}, []),
        ([CREATED, DELETED], {"made": {}}, ["topic made: it should not exist"]),
        ([CREATED, replace(DELETED, outcome=Outcome.UNKNOWN)], {"made": {}}, []),
        ([CREATED, replace(DELETED, outcome=Outcome.FAILED)], {}, ["topic made: it should exist"]),
    ],
)
def test_topics_are_as_they_were_left(
    changes: list[TopicChange], existing: Mapping[str, Mapping[str, str]], texts: list[str]
) -> None:
    assert violations(History(topics=changes), Ending({}, {}, frozenset(), existing, {})) == texts


def test_a_group_does_not_fall_back_but_for_power_losses() -> None:
    ending = Ending({}, {}, frozenset(), {}, {PARTITION: 3})
    commits = [Commit(PARTITION, 3, 1.0), Commit(PARTITION, 5, 2.0)]
    assert violations(History(commits=commits), ending) == ["t-0: 5 was committed for the group, which has 3"]
    assert violations(History(commits=commits, power_losses=[(2.5, 1)]), ending) == []
