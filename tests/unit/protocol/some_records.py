"""Any records, for property tests."""

from __future__ import annotations

from collections.abc import Generator

from hypothesis import strategies as st

from milena.protocol.records.record_scan import RecordFacts
from milena.protocol.records.records import Record

BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=20), BYTES), max_size=80).map(tuple)
RECORDS = st.lists(
    st.builds(Record, st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1), BYTES, BYTES, HEADERS),
    min_size=1,
    max_size=20,
)


def driven(steps: Generator[int, None, RecordFacts]) -> tuple[RecordFacts, int]:
    """The facts, and the pauses on the way."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, pauses
        pauses += 1
