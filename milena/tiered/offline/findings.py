"""The findings of a verification of a tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from milena.protocol.uuids import to_text
from milena.tiered.segments.segment_metadata import TopicIdPartition

GAP: Final = "gap"
OVERLAP: Final = "overlap"
UNREFERENCED: Final = "unreferenced"
ORPHAN: Final = "orphan"
UNFINISHED: Final = "unfinished"
UNDELETED: Final = "undeleted"
FOREIGN: Final = "foreign"
LEFTOVER: Final = "leftover"
LISTED_TWICE: Final = "listed-twice"
UNKNOWN_RECORD: Final = "unknown-record"
BAD_RECORD: Final = "bad-record"
TRANSITION: Final = "transition"
REPLACED: Final = "replaced"
REJECTED: Final = "rejected"
LOST_VALUES: Final = "lost-values"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem. ``what``: its description, without partition and segment. ``harmless``: it can occur in a healthy
    cluster, for example after a leader change, or the cluster resolves it."""

    kind: str
    what: str
    partition: TopicIdPartition | None = None
    segment: UUID | None = None
    harmless: bool = False

    def place(self) -> str:
        """The partition and the segment, as text; "" for the tier as a whole."""
        if self.partition is None:
            return ""
        name = f"{self.partition.topic}-{self.partition.partition}"
        return name if self.segment is None else f"{name} {to_text(self.segment)}"

    def plain(self) -> dict[str, object]:
        """Return the finding as plain data, for JSON."""
        partition = self.partition
        return {
            "kind": self.kind,
            "topic": partition.topic if partition else None,
            "topic_id": to_text(partition.topic_id) if partition else None,
            "partition": partition.partition if partition else None,
            "segment": to_text(self.segment) if self.segment else None,
            "what": self.what,
        }
