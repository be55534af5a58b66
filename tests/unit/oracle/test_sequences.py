"""Random sequences for the comparison with Kafka: repeatable, written and read back, cut down; each known difference
has its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.protocol.requests import messages
from tests.oracle.differential.sequences.generate import script
from tests.oracle.differential.sequences.known import KNOWN, Known
from tests.oracle.differential.sequences.run import GIVEN, Names, signature
from tests.oracle.differential.sequences.script import TAG, Script, read, tagged, written
from tests.oracle.differential.sequences.shrink import shrunk
from tests.oracle.differential.sides import Side

DOCUMENT = Path(__file__).parents[3] / "docs" / "compatibility.md"
NUMBERS = range(60)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_each_known_difference_has_its_row(known: Known) -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ") and known.row in line]
    assert len(rows) == 1 and "tests/" in rows[0], known.row


def test_a_seed_and_a_number_make_the_same_script_each_time() -> None:
    made = [script(5, number) for number in NUMBERS]
    assert [script(5, number) for number in NUMBERS] == made
    assert [script(6, number) for number in NUMBERS] != made


def test_a_written_script_is_read_back() -> None:
    for number in NUMBERS:
        made = script(5, number)
        assert written(read(written(made))) == written(made)


def test_every_step_is_a_request_that_its_version_has() -> None:
    side = Side("a", "h", 1, 1)
    side.names = Names()
    for number in NUMBERS:
        for step in script(5, number):
            fields = tagged(step.fields, TAG, "r000001")
            assert TAG.encode() not in messages.encode_request(step.key, step.version, **side.resolve(fields))
            assert not step.learns or step.key in GIVEN


def test_a_script_is_cut_down_to_what_shows_the_difference() -> None:
    """As if it showed where one step is for partition 1 of topic b after any step with acks 1."""
    whole = [step for number in NUMBERS for step in script(5, number)]
    first = next(step for step in whole if step.fields.get("acks") == 1)
    last = next(step for step in whole if len(step.fields.get("topics") or ()) > 1)
    wanted = last.fields["topics"][1]

    def shows(candidate: Script) -> bool:
        places = [index for index, step in enumerate(candidate) if step.fields.get("acks") == 1]
        topics = [step.fields.get("topics") or () for step in candidate[places[0] :]] if places else []
        return any(wanted in found for found in topics)

    small = shrunk([first, *whole[:40], last], shows, tries=1000)
    assert len(small) == 2 and small[1].fields["topics"] == [wanted]


def test_a_difference_is_called_by_its_field_and_by_codes_but_not_by_places() -> None:
    assert signature(".topics[3].partitions[0].error_code: Kafka 3, Milena 25") == (
        ".topics.partitions.error_code: Kafka 3, Milena 25"
    )
    assert signature(".topics[3].offset: Kafka 3, Milena 25") == ".topics.offset"
