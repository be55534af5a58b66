"""The checker of histories with transactions: a valid history has no violations, and each planted anomaly is found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milena.lab.histories import events
from milena.lab.histories.checker import Anomaly, check, counts
from milena.lab.histories.events import Event, Invoke, Void
from milena.lab.histories.files import judge_file
from milena.lab.histories.invocations import completed
from milena.lab.histories.transactions.cycles import cycles
from milena.lab.histories.transactions.delayed_requests import UNANSWERED
from milena.lab.histories.transactions.events import (
    CommittedPoll,
    FinalCommitted,
    FinalOffset,
    InitTimeout,
    ProducerInit,
    TransactionalSend,
    TransactionBegin,
    TransactionEnd,
    TransactionOffsets,
)
from milena.protocol.types import OFFSETS_TOPIC, TRANSACTION_TOPIC, TopicPartition
from tests.fixtures.properties import examples
from tests.unit.lab.transaction_histories import FAILED, GROUP, INPUT, OK, OUTPUTS, UNKNOWN, valid

SEEDS = st.integers(0, 1 << 32)
ONE, OTHER = OUTPUTS


def begin(name: str, at: float, producer: str = "a, 1") -> TransactionBegin:
    return TransactionBegin(name, producer, at)


def send(name: str, place: TopicPartition, offset: int, at: float, outcome: events.RequestOutcome = OK) -> Event:
    """A record whose value is ``NAME@OFFSET``."""
    return TransactionalSend(place, f"{name}@{offset}", name, at, at + 0.1, outcome, offset if outcome is OK else -1)


def end(name: str, at: float, *, commit: bool = True, outcome: events.RequestOutcome = OK) -> TransactionEnd:
    return TransactionEnd(name, commit, at, at + 0.1, outcome)


def log(place: TopicPartition, *values: str, last_stable: int = 100, high_watermark: int = 100) -> FinalCommitted:
    """The visible records: of each value, the offset is the number behind the @."""
    records = tuple((int(value.partition("@")[2]), value) for value in values)
    return FinalCommitted(place, records, last_stable, high_watermark)


def poll(place: TopicPartition, at: float, *values: str, transaction: str = "") -> CommittedPoll:
    return CommittedPoll(place, "r", at, log(place, *values).records, transaction)


def written(*, commit: bool = True, outcome: events.RequestOutcome = OK) -> list[Event]:
    """A transaction with a record in each of two partitions."""
    sends = [send("t", ONE, 0, 1), send("t", OTHER, 0, 2)]
    return [begin("t", 0), *sends, end("t", 3, commit=commit, outcome=outcome)]


def processed(name: str, first: int, following: int, at: float, output: int) -> list[Event]:
    """A committed transaction that has processed ``[first, following)`` of the input."""
    offsets = TransactionOffsets(name, GROUP, INPUT, first, following)
    return [begin(name, at), send(name, ONE, output, at + 1), offsets, end(name, at + 2)]


INPUTS: list[Event] = [
    begin("i", 0, "i, 1"),
    *(send("i", INPUT, offset, 0.1) for offset in range(4)),
    end("i", 0.5),
    log(INPUT, "i@0", "i@1", "i@2", "i@3"),
]

CASES: dict[str, tuple[Anomaly, Sequence[Event]]] = {
    "a record of an aborted transaction was read": (
        Anomaly.ABORTED_READ,
        [*written(commit=False), poll(ONE, 9, "t@0")],
    ),
    "a record is visible whose transaction was never ended": (
        Anomaly.ABORTED_READ,
        [*written()[:-1], log(ONE, "t@0"), log(OTHER, "t@0")],
    ),
    "a record is visible whose commit was refused": (
        Anomaly.ABORTED_READ,
        [*written(outcome=FAILED), log(ONE, "t@0"), log(OTHER, "t@0")],
    ),
    "a committed transaction is visible in one partition only": (
        Anomaly.TORN_TRANSACTION,
        [*written(), log(ONE, "t@0"), log(OTHER)],
    ),
    "a transaction without an answer is visible in one partition only": (
        Anomaly.TORN_TRANSACTION,
        [*written(outcome=UNKNOWN), log(ONE), log(OTHER, "t@0")],
    ),
    "a transaction was read in one partition and is not visible in the other": (
        Anomaly.TORN_TRANSACTION,
        [*written(outcome=UNKNOWN), poll(ONE, 9, "t@0"), log(OTHER)],
    ),
    "a committed transaction is not visible": (
        Anomaly.LOST_COMMITTED_WRITE,
        [*written(), log(ONE), log(OTHER)],
    ),
    "a record was read and is not visible in the end": (
        Anomaly.LOST_COMMITTED_WRITE,
        [*written(outcome=UNKNOWN), poll(ONE, 9, "t@0"), log(ONE), log(OTHER)],
    ),
    "a fenced producer's record is visible": (
        Anomaly.FENCED_WRITE,
        [
            ProducerInit("a", "a, 1", -2, -1),
            ProducerInit("a", "a, 2", 0.2, 0.4),
            *written(outcome=FAILED),
            log(ONE, "t@0"),
            log(OTHER),
        ],
    ),
    "a fenced producer's commit was acknowledged": (
        Anomaly.FENCED_WRITE,
        [ProducerInit("a", "a, 1", -2, -1), *written(), ProducerInit("a", "a, 2", 1, 2)],
    ),
    "two producers have the same epoch": (
        Anomaly.SHARED_EPOCH,
        [
            ProducerInit("a", "a, 1", 0, 0.1),
            TransactionBegin("t", "a, 1", 1, "7, epoch 3"),
            ProducerInit("b", "b, 1", 0, 0.1),
            TransactionBegin("u", "b, 1", 2, "7, epoch 3"),
        ],
    ),
    "a record was read before its transaction was ended": (
        Anomaly.BEYOND_LAST_STABLE,
        [*written(), poll(ONE, 2.5, "t@0"), log(ONE, "t@0"), log(OTHER, "t@0")],
    ),
    "a record was read above one of an open transaction": (
        Anomaly.BEYOND_LAST_STABLE,
        [
            *[begin("t", 0), send("t", ONE, 0, 1), end("t", 9)],
            *[begin("u", 1, "b, 1"), send("u", ONE, 1, 2), end("u", 3)],
            poll(ONE, 5, "u@1"),
            log(ONE, "t@0", "u@1"),
        ],
    ),
    "the last stable offset does not advance": (
        Anomaly.HANGING_TRANSACTION,
        [*written(commit=False), log(ONE, last_stable=0, high_watermark=3), log(OTHER)],
    ),
    "an offset of a transaction stays pending": (
        Anomaly.HANGING_TRANSACTION,
        [*INPUTS, FinalOffset(GROUP, INPUT, -1, stable=False)],
    ),
    "a transactional id cannot be initialized": (
        Anomaly.STUCK_ID,
        [*written(), InitTimeout("a", 5, 45), log(ONE, "t@0"), log(OTHER, "t@0")],
    ),
    "two transactions have read each other's records": (
        Anomaly.READ_CYCLE,
        [
            *[begin("t", 0), send("t", ONE, 0, 1), poll(OTHER, 4, "u@0", transaction="t"), end("t", 5)],
            *[begin("u", 0, "b, 1"), send("u", OTHER, 0, 1), poll(ONE, 4, "t@0", transaction="u"), end("u", 5)],
        ],
    ),
    "an offset is committed, and no output of its record is visible": (
        Anomaly.WITHOUT_OUTPUTS,
        [*INPUTS, *processed("t", 0, 2, 1, 0), FinalOffset(GROUP, INPUT, 3), log(ONE, "t@0")],
    ),
    "a transaction has skipped records": (
        Anomaly.WITHOUT_OUTPUTS,
        [
            *INPUTS,
            *processed("t", 0, 1, 1, 0),
            *processed("u", 3, 4, 5, 1),
            FinalOffset(GROUP, INPUT, 4),
            log(ONE, "t@0", "u@1"),
        ],
    ),
    "offsets were committed and the outputs aborted": (
        Anomaly.WITHOUT_OUTPUTS,
        [
            *INPUTS,
            *processed("t", 0, 2, 1, 0)[:-1],
            end("t", 4, commit=False),
            FinalOffset(GROUP, INPUT, 2),
            log(ONE),
        ],
    ),
    "outputs are visible, and the offset is not committed": (
        Anomaly.WITHOUT_OFFSETS,
        [*INPUTS, *processed("t", 0, 2, 1, 0), FinalOffset(GROUP, INPUT, -1), log(ONE, "t@0")],
    ),
    "two transactions have processed the same record": (
        Anomaly.WITHOUT_OFFSETS,
        [
            *INPUTS,
            *processed("t", 0, 2, 1, 0),
            *processed("u", 1, 3, 5, 1),
            FinalOffset(GROUP, INPUT, 3),
            log(ONE, "t@0", "u@1"),
        ],
    ),
    "a record is visible twice": (
        Anomaly.DUPLICATE,
        [*written(), FinalCommitted(ONE, ((0, "t@0"), (3, "t@0")), 9, 9), log(OTHER, "t@0")],
    ),
    "a record was never sent": (Anomaly.PHANTOM, [*written(), log(ONE, "t@0", "other@1"), log(OTHER, "t@0")]),
    "two records were at one offset": (
        Anomaly.INCONSISTENT_OFFSETS,
        [*written(), send("t", ONE, 1, 1.5), FinalCommitted(ONE, ((0, "t@0"), (0, "t@1")), 9, 9), log(OTHER, "t@0")],
    ),
    "a reader has skipped a record": (
        Anomaly.POLL_SKIP,
        [
            *[begin("t", 0), *(send("t", ONE, at, 1) for at in range(3)), end("t", 3)],
            poll(ONE, 5, "t@0"),
            poll(ONE, 6, "t@2"),
            log(ONE, "t@0", "t@1", "t@2"),
        ],
    ),
    "a reader has gone back": (
        Anomaly.NONMONOTONIC_POLL,
        [*written(), poll(ONE, 5, "t@0"), poll(ONE, 6, "t@0"), log(ONE, "t@0"), log(OTHER, "t@0")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_planted_anomaly_is_found(case: str) -> None:
    anomaly, history = CASES[case]
    assert anomaly in counts(check(history))


@given(SEEDS)
@settings(max_examples=examples(100))
def test_a_valid_history_has_no_violations(seed: int) -> None:
    assert [one for one in check(valid(seed)) if one.fails] == []


def test_valid_histories_have_what_the_rules_are_about() -> None:
    """Otherwise that they have no violations says nothing."""
    found = [event for seed in range(20) for event in valid(seed)]
    ends = {(one.commit, one.outcome) for one in found if isinstance(one, TransactionEnd)}
    assert ends == {(commit, outcome) for commit in (True, False) for outcome in (OK, FAILED, UNKNOWN)}
    assert sum(isinstance(one, TransactionOffsets) for one in found) > 20
    assert sum(isinstance(one, FinalOffset) and one.offset > 0 for one in found) > 10
    assert Anomaly.WRITE_CYCLE in counts(check(valid(2)))


@given(SEEDS)
@settings(max_examples=examples(30))
def test_a_random_history_in_which_one_visible_record_is_hidden_is_torn_or_loses_a_write(seed: int) -> None:
    history = valid(seed)
    logs = [one for one in history if isinstance(one, FinalCommitted) and one.partition in OUTPUTS and one.records]
    for one in logs[:1]:
        changed = FinalCommitted(one.partition, one.records[1:], one.last_stable, one.end)
        found = counts(check([changed if event is one else event for event in history]))
        assert found.keys() & {Anomaly.TORN_TRANSACTION, Anomaly.LOST_COMMITTED_WRITE, Anomaly.WITHOUT_OUTPUTS} or (
            _has_unknown_end(history, one.records[0][1])
        )


def _has_unknown_end(history: Sequence[Event], value: str) -> bool:
    """Whether the only record of a transaction without an answer is hidden: then it may be aborted."""
    name = next(one.transaction for one in history if isinstance(one, TransactionalSend) and one.value == value)
    return any(one.outcome is UNKNOWN for one in history if isinstance(one, TransactionEnd) and one.transaction == name)


CYCLE_OF_WRITES: list[Event] = [
    *[begin("t", 0), send("t", ONE, 0, 1), send("t", OTHER, 1, 1), end("t", 3)],
    *[begin("u", 0, "b, 1"), send("u", ONE, 1, 1), send("u", OTHER, 0, 1), end("u", 3)],
    log(ONE, "t@0", "u@1"),
    log(OTHER, "u@0", "t@1"),
]


def test_write_cycles_are_counted_and_do_not_fail() -> None:
    (found,) = check(CYCLE_OF_WRITES)
    assert str(found) == (
        "write cycle: transactions: 2 transactions are in cycles of writes, 2 in cycles of writes and reads"
    )
    assert not found.fails


def test_a_cycle_that_needs_a_write_is_legal() -> None:
    """t reads u's record, and its own is below u's in another partition."""
    history = [
        *[begin("u", 0, "b, 1"), send("u", OTHER, 0, 1), send("u", ONE, 1, 2.5), end("u", 3)],
        *[begin("t", 0), send("t", ONE, 0, 2), poll(OTHER, 4, "u@0", transaction="t"), end("t", 5)],
        log(ONE, "t@0", "u@1"),
        log(OTHER, "u@0"),
    ]
    (found,) = check(history)
    assert "0 transactions are in cycles of writes, 2 in" in str(found)
    assert not found.fails


@pytest.mark.parametrize(
    ("topic", "case"),
    [
        (TRANSACTION_TOPIC, "a committed transaction is visible in one partition only"),
        (TRANSACTION_TOPIC, "a record of an aborted transaction was read"),
        (TRANSACTION_TOPIC, "a transactional id cannot be initialized"),
        (TRANSACTION_TOPIC, "the last stable offset does not advance"),
        (TRANSACTION_TOPIC, "an offset of a transaction stays pending"),
        (ONE[0], "a record of an aborted transaction was read"),
        (ONE[0], "the last stable offset does not advance"),
        (OFFSETS_TOPIC, "outputs are visible, and the offset is not committed"),
        (OFFSETS_TOPIC, "an offset is committed, and no output of its record is visible"),
    ],
)
def test_a_void_ends_the_promises_for_what_was_begun_before_it(topic: str, case: str) -> None:
    anomaly, history = CASES[case]
    assert anomaly not in counts(check([*history, Void((topic, 0), 50, "an unclean election")]))
    if topic == TRANSACTION_TOPIC and anomaly not in (Anomaly.STUCK_ID, Anomaly.HANGING_TRANSACTION):
        assert anomaly in counts(check([*history, Void((topic, 0), -1, "an unclean election")]))


def test_a_producer_with_the_epoch_of_an_earlier_one_gets_its_duplicates_after_states_were_lost() -> None:
    """The leader has answered the batch of t with the offset of the batch of u, of which only that partition knows."""

    def history(identity: str, lost: float) -> list[Event]:
        return [
            ProducerInit("a", "a, 1", 0, 0.1),
            TransactionBegin("u", "a, 1", 1, "7, epoch 3"),
            send("u", ONE, 0, 1.5),
            ProducerInit("a", "a, 2", 4, 4.1),
            TransactionBegin("t", "a, 2", 5, identity),
            *[send("t", ONE, 0, 5.5), send("t", OTHER, 0, 5.5), end("t", 6)],
            log(ONE, "u@0"),
            log(OTHER, "t@0"),
            Void((TRANSACTION_TOPIC, 0), lost, "power"),
        ]

    assert check(history("7, epoch 3", 3)) == []
    for found in (check(history("7, epoch 4", 3)), check(history("7, epoch 3", -1)), check(history("", 3))):
        assert {Anomaly.TORN_TRANSACTION, Anomaly.LOST_COMMITTED_WRITE} <= counts(found).keys()


def test_what_may_have_been_committed_is_no_anomaly() -> None:
    for logs in ([log(ONE), log(OTHER)], [log(ONE, "t@0"), log(OTHER, "t@0")]):
        assert check([*written(outcome=UNKNOWN), *logs]) == []


def test_a_transaction_that_has_timed_out_may_be_aborted_again() -> None:
    late = [begin("t", 0), send("t", ONE, 0, 1), end("t", 9, commit=False)]
    other = [begin("u", 1, "b, 1"), send("u", ONE, 2, 5), end("u", 6)]
    assert check([*late, *other, poll(ONE, 8, "u@2"), log(ONE, "u@2")]) == []


def test_a_fenced_producer_may_commit_a_transaction_of_which_no_broker_has_accepted_anything() -> None:
    fenced = [ProducerInit("a", "a, 1", -2, -1), ProducerInit("a", "a, 2", 1, 2)]
    expired: list[Event] = [begin("t", 0), send("t", ONE, 0, 0.5, UNKNOWN), end("t", 3)]
    assert check([*expired, *fenced, log(ONE)]) == []
    assert [*counts(check([*expired, *fenced, log(ONE, "t@0")]))] == [Anomaly.FENCED_WRITE]


def test_a_producer_that_was_initialized_at_the_same_time_is_not_known_to_be_fenced() -> None:
    inits = [ProducerInit("a", "a, 1", -3, -1), ProducerInit("a", "a, 2", -2, -1)]
    assert check([*inits, *written(), log(ONE, "t@0"), log(OTHER, "t@0")]) == []


SHARED_EPOCH: Event = ProducerInit("a", "a, 1", -9, -8, own_epochs=False)
SLOW_END: list[Event] = [begin("s", -7), end("s", -6, commit=False, outcome=UNKNOWN)]
"""A transaction before ``written``, whose EndTxn may still arrive."""


@pytest.mark.parametrize(
    "case",
    [
        "a record of an aborted transaction was read",
        "a record is visible whose commit was refused",
        "a committed transaction is visible in one partition only",
        "a record was read and is not visible in the end",
    ],
)
def test_a_delayed_request_may_change_a_transaction_with_the_same_epoch(case: str) -> None:
    anomaly, history = CASES[case]
    found = check([SHARED_EPOCH, *SLOW_END, *history])
    assert {one.anomaly for one in found} == {Anomaly.DELAYED_REQUEST} and not any(one.fails for one in found)
    assert found[0].text.startswith(anomaly.value) or len(found) > 1
    for untouched in ([SHARED_EPOCH, *history], [*SLOW_END, *history]):
        assert anomaly in counts(check(untouched))
        assert Anomaly.DELAYED_REQUEST not in counts(check(untouched))


def test_a_slow_end_may_have_a_delayed_request_and_an_answered_one_has_none() -> None:
    anomaly, history = CASES["a record of an aborted transaction was read"]
    for seconds, expected in ((UNANSWERED + 0.5, Anomaly.DELAYED_REQUEST), (UNANSWERED - 0.5, anomaly)):
        former: list[Event] = [begin("s", -7), TransactionEnd("s", True, -6, -6 + seconds, OK)]
        assert set(counts(check([SHARED_EPOCH, *former, *history]))) == {expected}


def test_a_delayed_request_of_another_producer_changes_nothing() -> None:
    anomaly, history = CASES["a record of an aborted transaction was read"]
    other: list[Event] = [begin("s", -7, "a, 0"), end("s", -6, outcome=UNKNOWN)]
    inits: list[Event] = [ProducerInit("a", "a, 0", -11, -10, own_epochs=False), SHARED_EPOCH]
    assert anomaly in counts(check([*inits, *other, *history]))


def test_writes_of_a_fenced_producer_are_never_excused_as_delayed() -> None:
    newer = ProducerInit("a", "a, 2", 0.2, 0.4, own_epochs=False)
    history: list[Event] = [SHARED_EPOCH, newer, *SLOW_END, *written(outcome=FAILED), log(ONE, "t@0"), log(OTHER)]
    assert Anomaly.FENCED_WRITE in counts(check(history))


def test_offsets_of_a_transaction_that_a_delayed_request_may_have_ended_are_not_judged() -> None:
    for case in (
        "outputs are visible, and the offset is not committed",
        "a record was read before its transaction was ended",
    ):
        anomaly, history = CASES[case]
        producers = {one.producer for one in history if isinstance(one, TransactionBegin)}
        before: list[Event] = []
        for producer in sorted(producers):
            before += [
                ProducerInit(producer, producer, -9, -8, own_epochs=False),
                begin(f"s {producer}", -7, producer),
                end(f"s {producer}", -6, commit=False, outcome=UNKNOWN),
            ]
        assert anomaly in counts(check(history))
        assert anomaly not in counts(check([*before, *history]))


def test_records_that_were_deleted_are_not_missing() -> None:
    logs = [FinalCommitted(place, (), 9, 9, start=5) for place in OUTPUTS]
    assert check([*written(), *logs]) == []


def test_a_commit_that_was_under_way_when_the_run_ended_may_have_taken_effect() -> None:
    started = [*written()[:-1], Invoke("commit", 3, key="t")]
    logs: list[Event] = [log(ONE, "t@0"), log(OTHER, "t@0")]
    assert check(completed([*started, *logs])) == []
    assert Anomaly.ABORTED_READ in counts(check(completed([*started[:-1], *logs])))
    assert list(completed([*started, end("t", 3)]))[-1] == end("t", 3)


def test_a_record_that_was_being_sent_when_the_run_ended_is_no_phantom() -> None:
    started: list[Event] = [
        begin("t", 0),
        Invoke("transactional send", 1, ONE, "t@0", "t"),
        Invoke("commit", 2, key="t"),
    ]
    assert check(completed([*started, poll(ONE, 9, "t@0")])) == []


@given(seed=SEEDS)
@settings(max_examples=examples(10))
def test_a_history_on_disk_has_the_same_verdict(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    history = [*valid(seed), *CASES["a committed transaction is not visible"][1], Void(("other", 0), 3, "power")]
    path: Path = tmp_path_factory.mktemp("history") / "history.jsonl"
    path.write_text("".join(events.write(history)))
    assert list(events.read(path.read_text().splitlines())) == history
    assert judge_file(path) == check(history)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=25))
def test_cycles_are_the_nodes_that_reach_each_other(pairs: list[tuple[int, int]]) -> None:
    edges: dict[str, set[str]] = {}
    for one, other in pairs:
        edges.setdefault(str(one), set()).add(str(other))

    def reached(node: str) -> set[str]:
        found: set[str] = set()
        left = [node]
        while left:
            new = edges.get(left.pop(), set()) - found
            found |= new
            left += new
        return found

    nodes = sorted({str(node) for pair in pairs for node in pair})
    expected = {
        frozenset(other for other in nodes if other == node or (other in reached(node) and node in reached(other)))
        for node in nodes
    }
    assert {frozenset(cycle) for cycle in cycles(edges)} == {one for one in expected if len(one) > 1}


def test_a_long_chain_of_transactions_is_no_cycle_and_needs_no_recursion() -> None:
    chain = {str(number): [str(number + 1)] for number in range(20_000)}
    assert list(cycles(chain)) == []
    assert [len(one) for one in cycles({**chain, "20000": ["0"]})] == [20_001]
