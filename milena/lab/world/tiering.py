"""The simulated tier's folder, and random configurations of tiered topics."""

from __future__ import annotations

from typing import Final

from milena.runtime.randomness import Randomness

FOLDER: Final = "/tier"
TIERED: Final = "remote.storage.enable"
SEGMENT_BYTES: Final = (3000, 6000)
LOCAL_BYTES: Final = ("1", "1", "6000")
"""Values of ``local.retention.bytes``, chosen at random."""
UNLIMITED: Final = "-1"
RETAINED_BYTES: Final = (UNLIMITED, UNLIMITED, "20000")
"""Values of ``retention.bytes``."""


def tiered(random: Randomness) -> dict[str, str]:
    """Return the configuration of a tiered topic, beside its own."""
    return {
        TIERED: "true",
        "internal.segment.bytes": str(random.choice(SEGMENT_BYTES)),
        "local.retention.bytes": random.choice(LOCAL_BYTES),
        "retention.bytes": random.choice(RETAINED_BYTES),
        "file.delete.delay.ms": "1000",
    }
