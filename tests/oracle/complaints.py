"""The messages that Kafka's DumpLogSegments prints for damaged files."""

from __future__ import annotations

from typing import Final

COMPLAINTS: Final = (
    "Found timestamp mismatch",
    "Found out of order timestamp",
    "Non-consecutive offset",
    "Mismatches in",
    "Mismatch",
    "isvalid: false",
    "Skipping",
    "Exception",
    "Could not",
    "invalid bytes",
    "does not exist",
)
