"""Why a mutant may survive, by its name: it is no other program, or only costs time, or another test would see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NO_SEGMENT_FITS: Final = "saves the walk alone: no closed segment ends at or below such a stable offset"

REASONS: Final[Mapping[str, str]] = {
    "tiered/eligibility.py: candidates: stable <= 0 or copied >= stable -> copied >= stable": _NO_SEGMENT_FITS,
    "tiered/eligibility.py: candidates: stable <= 0 or copied >= stable -> stable <= 0": _NO_SEGMENT_FITS,
    "tiered/eligibility.py: candidates: stable <= 0 -> stable < 0": _NO_SEGMENT_FITS,
    "tiered/eligibility.py: candidates: copied >= stable -> copied > stable": _NO_SEGMENT_FITS,
    "tiered/lineage.py: is_within_leader_epochs: index == begin and found > 0 and (start < leader_epochs[found].start) "
    "-> found > 0 and start < leader_epochs[found].start": "later epochs were compared with the log's before",
    "controller/elections.py: Candidates.elect: last is not None and last in self.replicas and (not clean) "
    "and acceptable(last) -> last in self.replicas and (not clean) and acceptable(last)": "None is no replica",
}
