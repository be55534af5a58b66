"""The broker keys that a topic's keys fall back to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MS: Final = 1
MINUTES: Final = 60_000
HOURS: Final = 3_600_000

BROKER_SYNONYMS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", MS), ("log.roll.hours", HOURS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", MS), ("log.roll.jitter.hours", HOURS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", MS), ("log.flush.scheduler.interval.ms", MS)),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", MS), ("log.retention.minutes", MINUTES), ("log.retention.hours", HOURS)),
    "max.message.bytes": (("message.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", MS),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", MS),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", MS),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", MS),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "preallocate": (("log.preallocate", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", MS),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", MS),),
    "local.retention.ms": (("log.local.retention.ms", MS),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", MS),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 1),),
    "max.decompressed.message.bytes": (("max.decompressed.message.bytes", 1),),
}
"""Topic key to the broker keys with its default; the first that is set counts. Each with its unit in ms (or 1)."""
