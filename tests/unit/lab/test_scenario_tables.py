"""Tables of scenarios: parsing, comparison (exact or with the document's epoch numbers), and drawing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.lab.scenarios.tables import Renumbering, Table, TableError, side_by_side

DOCUMENT = Table.parse({"log": {0: ["B:0", 1], 1: ["B:1", 3]}, "epochs": {1: 0, 3: 1}, "committed": 1})


def test_a_number_is_short_for_the_message_with_that_number() -> None:
    assert Table.parse({"log": {3: [7, 2]}}).log == {3: ("msg 7", 2)}


@pytest.mark.parametrize("fields", [{"lgo": {}}, {"log": {0: [1]}}, {"log": {0: "msg 1"}}])
def test_a_table_that_cannot_be_read_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(TableError):
        Table.parse(fields)


def test_fields_that_an_expectation_does_not_name_are_not_checked() -> None:
    assert Table.parse({"committed": 1}).differences(DOCUMENT) == []


def test_each_differing_field_is_reported() -> None:
    found = Table.parse({"log": {0: ["A:0", 1]}, "epochs": {1: 0}, "committed": 0, "stopped": True})
    assert [text.split(":")[0] for text in DOCUMENT.differences(found)] == [
        "log",
        "epochs",
        "committed",
        "it is stopped",
    ]


def test_after_renumbering_of_epochs_a_run_equals_the_document_s_table() -> None:
    run = Table.parse({"log": {0: ["B:0", 4], 1: ["B:1", 9]}, "epochs": {4: 0, 9: 1, 11: 2}, "committed": 1})
    numbering = Renumbering((1, 3))
    numbering.observe([run])
    assert DOCUMENT.differences(run)
    assert DOCUMENT.differences(numbering.apply(run)) == []


def test_an_epoch_keeps_its_number_after_its_records_were_truncated() -> None:
    numbering = Renumbering((0, 1, 2, 3))
    numbering.observe([Table.parse({"log": {0: ["A:0", 2], 1: ["A:1", 6]}})])
    after = Table.parse({"log": {0: ["B:0", 4], 1: ["B:1", 8]}})
    numbering.observe([after])
    assert numbering.apply(after).log == {0: ("B:0", 1), 1: ("B:1", 3)}


def test_more_epochs_with_records_than_the_document_has_are_an_error() -> None:
    numbering = Renumbering((0,))
    numbering.observe([DOCUMENT])
    with pytest.raises(TableError):
        numbering.apply(DOCUMENT)


@given(st.sets(st.integers(0, 50), min_size=1, max_size=8))
def test_renumbering_preserves_the_order_of_epochs(written: set[int]) -> None:
    numbering = Renumbering(range(len(written)))
    numbering.observe([Table(log={at: ("x", epoch) for at, epoch in enumerate(written)})])
    numbers = numbering.numbers
    assert [numbers[epoch] for epoch in sorted(written)] == list(range(len(written)))


def test_tables_are_drawn_side_by_side_as_in_the_documents() -> None:
    other = Table.parse({"log": {0: ["A:0", 0]}, "epochs": {0: 0}, "stopped": True})
    assert side_by_side({"Broker A": other.lines(), "Broker B (Leader)": DOCUMENT.lines()}).splitlines() == [
        "Broker A        Broker B (Leader)",
        "--------        -----------------",
        "stopped         0: B:0 LE-1",
        "0: A:0 LE-0     1: B:1 LE-3 (HW)",
        "leader_epochs   leader_epochs",
        "LE-0, 0         LE-1, 0",
        "                LE-3, 1",
    ]
