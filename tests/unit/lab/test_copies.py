"""The headers of two batches with the same record tell whether the client sent it again or the broker missed it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milena.commands import history
from milena.lab.chaos.ending import repeated
from milena.lab.histories.checker import Violation, check
from milena.lab.histories.copies import Copies
from milena.lab.histories.events import Event, FinalLog, RequestOutcome, Send, from_line, to_line, write
from milena.lab.histories.keyed import FullRead, KeyedWrite

AT = ("plain", 0)
LIBRDKAFKA, JAVA, OWN = (f"{library}/plain:7" for library in ("confluent-kafka", "java", "milena"))
NEW_EPOCH = ((0, 1006, 0, 12), (1, 1006, 1, 0))
NEW_ID = ((0, 1006, 0, 12), (1, 1007, 0, 0))
SAME_BATCH = ((0, 1006, 0, 12), (1, 1006, 0, 12))
SAME_EPOCH = ((0, 1006, 0, 12), (1, 1006, 0, 13))


def found(value: str, *copies: tuple[int, int, int, int]) -> Violation:
    """The one violation of a log that has ``value`` at 0 and 1."""
    history: list[Event] = [
        Send(AT, value, 1.0, 2.0, RequestOutcome.OK),
        FinalLog(AT, ((0, value, 0), (1, value, 0)), dense=True),
        Copies(AT, value, copies),
    ]
    assert [from_line(to_line(event)) for event in history] == history
    (violation,) = check(history)
    return violation


@pytest.mark.parametrize("copies", [NEW_EPOCH, NEW_ID])
def test_a_record_that_librdkafka_sent_under_a_new_epoch_does_not_fail_a_run(
    copies: tuple[tuple[int, int, int, int], ...],
) -> None:
    violation = found(LIBRDKAFKA, *copies)
    assert violation.anomaly.value == "sent again"
    assert not violation.fails
    assert "the client sent it again under a new epoch" in violation.text


def test_the_description_has_the_headers_of_all_copies() -> None:
    assert found(LIBRDKAFKA, *NEW_EPOCH).text == (
        "confluent-kafka/plain:7 is at 0 and 1: producer id 1006 epoch 0 sequence 12 at 0, producer id 1006 epoch 1 "
        "sequence 0 at 1: the client sent it again under a new epoch or producer id"
    )


@pytest.mark.parametrize("value", [JAVA, OWN])
def test_other_clients_must_not_send_a_record_again_under_a_new_epoch(value: str) -> None:
    violation = found(value, *NEW_EPOCH)
    assert violation.anomaly.value == "duplicate"
    assert violation.fails
    assert "the client sent it again under a new epoch" in violation.text


@pytest.mark.parametrize("value", [LIBRDKAFKA, JAVA])
@pytest.mark.parametrize(
    ("copies", "cause"),
    [
        (SAME_BATCH, "the broker has accepted a batch twice"),
        ((*NEW_EPOCH, (2, 1006, 1, 0)), "the broker has accepted a batch twice"),
        (SAME_EPOCH, "the client sent it again in the same epoch with another sequence number"),
        (NEW_EPOCH[:1], "is at 0 and 1"),
        ((), "is at 0 and 1"),
    ],
)
def test_every_other_duplicate_fails_a_run(
    value: str, copies: tuple[tuple[int, int, int, int], ...], cause: str
) -> None:
    violation = found(value, *copies)
    assert violation.anomaly.value == "duplicate"
    assert violation.fails
    assert violation.text.endswith(cause)


def test_values_of_compacted_topics_are_judged_by_their_headers_too() -> None:
    value = "confluent-kafka/compacted:7"
    place = ("compacted", 0)
    wrote = KeyedWrite(place, "k", value, 1.0, 2.0, RequestOutcome.OK, 0)
    read = FullRead(place, 3.0, 4.0, 2, (("k", 1, value),), final=True)
    assert [one.anomaly.value for one in check([wrote, read])] == ["duplicate"]
    assert [one.anomaly.value for one in check([wrote, read, Copies(place, value, NEW_EPOCH)])] == ["sent again"]


def test_only_a_duplicate_that_a_broker_could_detect_changes_the_exit_code(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    log = FinalLog(AT, ((0, LIBRDKAFKA, 0), (1, LIBRDKAFKA, 0)), dense=True)
    copies = Copies(AT, LIBRDKAFKA, NEW_EPOCH)
    sent = Send(AT, LIBRDKAFKA, 1.0, 2.0, RequestOutcome.OK)
    file.write_text("".join(write([sent, log, copies])))
    assert history.main(["check", str(file)]) == 0
    file.write_text("".join(write([sent, log, replace(copies, copies=SAME_BATCH)])))
    assert history.main(["check", str(file)]) == 1


def test_tombstones_are_no_copies_of_each_other() -> None:
    assert repeated([(0, "a"), (1, ""), (2, "b"), (3, ""), (4, "a")]) == {"a": [0, 4]}
