"""The rules of one committed offset, compared with a model that tries every order of the writes and every prefix."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from milena.lab.histories.register_events import EVER, Read, Value, Write
from milena.lab.histories.registers import RegisterAnomaly, judge
from tests.fixtures.properties import examples

NODES = ("a", "b", "")
TIMES = st.tuples(st.integers(0, 9), st.integers(1, 6)).map(lambda pair: (float(pair[0]), float(sum(pair))))
VALUES: st.SearchStrategy[Value] = st.sampled_from([None, None, (1, ""), (1, ""), (2, ""), (3, "")])


@st.composite
def writes(draw: st.DrawFn) -> Write:
    begun, ended = draw(TIMES)
    if draw(st.integers(0, 5)) == 0:
        return Write(None, ended + draw(st.integers(0, 4)), ended, False)  # the expiry of a commit
    sure = draw(st.booleans()) or draw(st.booleans())
    return Write(draw(VALUES), begun, ended if sure else EVER, sure, draw(st.sampled_from(NODES)))


@st.composite
def reads(draw: st.DrawFn) -> Read:
    begun, ended = draw(TIMES)
    return Read(draw(VALUES), begun, ended, draw(st.sampled_from(NODES)), draw(st.integers(0, 3)) == 0)


def orders(of: Sequence[Write]) -> Iterator[tuple[Write, ...]]:
    """Yields all orders that real time allows, each with a subset of the writes of unknown outcome."""
    sure, rest = [one for one in of if one.sure], [one for one in of if not one.sure]
    for some in chain.from_iterable(combinations(rest, count) for count in range(len(rest) + 1)):
        for order in permutations([*sure, *some]):
            if not any(later.ended <= one.begun for one, later in combinations(order, 2)):
                yield order


def prefixes(order: Sequence[Write], read: Read) -> Iterator[int]:
    """Yields the lengths of the prefixes of ``order`` that the reader's node may have had."""
    for count in range(len(order) + 1):
        here, missing = order[:count], order[count:]
        if (here[-1].value if here else None) != read.value or any(one.begun >= read.ended for one in here):
            continue
        if not any(one.sure and one.ended <= read.begun and _same(one.node, read) for one in missing):
            yield count


def _same(node: str, read: Read) -> bool:
    return read.settled or node == read.node != ""


def is_explained(order: Sequence[Write], left: Sequence[Read], seen: Sequence[tuple[Read, int]] = ()) -> bool:
    if not left:
        return True
    read, *rest = left
    for count in prefixes(order, read):
        before = all(at <= count for one, at in seen if one.ended <= read.begun and _same(one.node, read))
        behind = all(count <= at for one, at in seen if read.ended <= one.begun and _same(read.node, one))
        if before and behind and is_explained(order, rest, [*seen, (read, count)]):
            return True
    return False


@given(st.lists(writes(), max_size=4), st.lists(reads(), max_size=4))
@settings(max_examples=examples(400))
def test_a_history_is_valid_if_an_order_with_prefixes_explains_all_reads(some: list[Write], seen: list[Read]) -> None:
    assert (not list(judge(some, seen))) == any(is_explained(order, seen) for order in orders(some))


ONE, TWO = (1, "one"), (2, "two")


def found(some: Sequence[Write], *seen: Read) -> list[RegisterAnomaly]:
    return [wrong for wrong, _ in judge(some, seen)]


def test_each_anomaly_is_found() -> None:
    one, two = Write(ONE, 0, 1, True, "a"), Write(TWO, 2, 3, True, "a")
    deleted = Write(None, 2, 3, True, "a")
    assert found([one, two], Read(TWO, 4, 5, "a")) == []
    assert found([one, two], Read(ONE, 4, 5, "a")) == [RegisterAnomaly.BACK]
    assert found([one, two], Read(None, 4, 5, "a")) == [RegisterAnomaly.LOST]
    assert found([one], Read(TWO, 4, 5, "a")) == [RegisterAnomaly.FROM_NOWHERE]
    assert found([one, deleted], Read(ONE, 4, 5, "a")) == [RegisterAnomaly.DELETED_BACK]
    assert found([one, deleted], Read(None, 4, 5, "a")) == []


def test_a_former_coordinator_may_lack_later_commits_until_the_cluster_has_settled() -> None:
    some = [Write(ONE, 0, 1, True, "a"), Write(TWO, 2, 3, True, "b")]
    assert found(some, Read(ONE, 4, 5, "a")) == []
    assert found(some, Read(ONE, 4, 5, "")) == []
    assert found(some, Read(ONE, 4, 5, "a", settled=True)) == [RegisterAnomaly.BACK]


def test_a_write_of_unknown_outcome_may_take_effect_later_and_then_stays() -> None:
    some = [Write(ONE, 0, 1, True, "a"), Write(TWO, 0, EVER, False, "a")]
    assert found(some, Read(ONE, 4, 5, "a"), Read(TWO, 6, 7, "a")) == []
    assert found(some, Read(TWO, 4, 5, "a"), Read(ONE, 6, 7, "a")) == [RegisterAnomaly.ORDER]


def test_concurrent_commit_and_deletion_have_one_final_result() -> None:
    some = [Write(ONE, 0, 2, True, "a"), Write(None, 1, 3, True, "a")]
    assert found(some, Read(None, 4, 5, "a"), Read(None, 6, 7, "b", settled=True)) == []
    assert found(some, Read(ONE, 4, 5, "a"), Read(ONE, 6, 7, "b", settled=True)) == []
    assert found(some, Read(None, 4, 5, "a"), Read(ONE, 6, 7, "b", settled=True)) != []


def test_an_expired_commit_may_disappear_once_but_no_later_commit() -> None:
    some = [Write(ONE, 0, 1, True, "a"), Write(None, 4, 1, False)]
    in_the_end = [Read(ONE, 5, 6, "a", settled=True), Read(None, 7, 8, "b", settled=True)]
    assert found(some, *in_the_end) == []
    assert found(some, Read(None, 2, 3, "a")) == [RegisterAnomaly.LOST]
    assert found(some, *in_the_end, Read(ONE, 9, 10, "b")) != []
    assert found([*some, Write(TWO, 2, 3, True, "a")], Read(None, 7, 8, "a")) == [RegisterAnomaly.LOST]


def test_an_excuse_explains_a_missing_commit_but_not_its_return() -> None:
    some = [Write(ONE, 0, 1, True, "a")]
    assert found(some, Read(None, 4, 5, "a")) == [RegisterAnomaly.LOST]
    assert found(some, Read(None, 4, 5, "a", excuse=2)) == []
    assert found(some, Read(None, 4, 5, "a", excuse=6)) == [RegisterAnomaly.LOST]
    assert found(some, Read(None, 4, 5, "a", excuse=2), Read(ONE, 6, 7, "a")) != []


def test_a_long_history_takes_no_more_memory_than_it_has_events() -> None:
    """Each read follows all earlier commits; a list of these pairs would have 12 million items."""
    some = [Write((at, ""), 4.0 * at, 4.0 * at + 1, True, "a") for at in range(5_000)]
    seen = [Read(write.value, write.begun + 2, write.begun + 3, "a") for write in some]
    tracemalloc.start()
    assert found(some, *seen) == []
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2_000 * len(some)


def test_of_many_reads_the_two_that_contradict_each_other_are_reported() -> None:
    some = [Write((at, ""), 4.0 * at, 4.0 * at + 1, True, "a") for at in range(3, 300)]
    seen = [Read(write.value, write.begun + 2, write.begun + 3, "a") for write in some]
    late = seen[-1].ended
    some += [Write(ONE, late, late + 1, True, "a"), Write(TWO, late, EVER, False, "a")]
    contradicting = [Read(value, late + at, late + at + 1, "a") for value, at in ((TWO, 4), (ONE, 6))]
    ((wrong, text),) = judge(some, [*seen, *contradicting])
    assert wrong is RegisterAnomaly.ORDER
    assert text == f"no order of writes explains that {contradicting[0]}; {contradicting[1]}"
