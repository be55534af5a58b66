"""The keys of a topic."""

from __future__ import annotations

from typing import Final

from milena.config.definitions import Key, Mode
from milena.config.validators import GzipLevel, Names, OneOf, Range, ThrottledReplicas
from milena.config.values import MAX_LONG, Type

MAX_DOUBLE: Final = 1.7976931348623157e308

KEYS: Final = (
    Key(
        "cleanup.policy",
        Type.LIST,
        ("delete",),
        Names(("compact", "delete"), may_be_empty=True),
        Mode.PER_TOPIC,
        "What happens to old segments: delete, compact or both.",
    ),
    Key(
        "compression.type",
        Type.STRING,
        "producer",
        OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        Mode.PER_TOPIC,
        "Codec of batches on disk; producer keeps what came.",
    ),
    Key("compression.gzip.level", Type.INT, -1, GzipLevel(), Mode.PER_TOPIC, "Level of gzip."),
    Key("compression.lz4.level", Type.INT, 9, Range(1, 17), Mode.PER_TOPIC, "Level of lz4."),
    Key("compression.zstd.level", Type.INT, 3, Range(-131_072, 22), Mode.PER_TOPIC, "Level of zstd."),
    Key("delete.retention.ms", Type.LONG, 86_400_000, Range(0), Mode.PER_TOPIC, "Time that tombstones stay."),
    Key(
        "file.delete.delay.ms",
        Type.LONG,
        60_000,
        Range(0),
        Mode.PER_TOPIC,
        "Time from the deletion of a segment to that of its files.",
    ),
    Key(
        "flush.messages",
        Type.LONG,
        MAX_LONG,
        Range(1),
        Mode.PER_TOPIC,
        "Records after which the partition is flushed to disk.",
    ),
    Key(
        "flush.ms", Type.LONG, MAX_LONG, Range(0), Mode.PER_TOPIC, "Time after which the partition is flushed to disk."
    ),
    Key(
        "follower.replication.throttled.replicas",
        Type.LIST,
        (),
        ThrottledReplicas(),
        Mode.PER_TOPIC,
        "Followers under the replication quota.",
    ),
    Key("index.interval.bytes", Type.INT, 4096, Range(0), Mode.PER_TOPIC, "Bytes between two index entries."),
    Key(
        "internal.segment.bytes",
        Type.INT,
        None,
        None,
        Mode.PER_TOPIC,
        "Segment size without its lower limit, for tests.",
    ),
    Key(
        "leader.replication.throttled.replicas",
        Type.LIST,
        (),
        ThrottledReplicas(),
        Mode.PER_TOPIC,
        "Leaders under the replication quota.",
    ),
    Key(
        "local.retention.bytes",
        Type.LONG,
        -2,
        Range(-2),
        Mode.PER_TOPIC,
        "Local size of a tiered partition; -2 takes retention.bytes.",
    ),
    Key(
        "local.retention.ms",
        Type.LONG,
        -2,
        Range(-2),
        Mode.PER_TOPIC,
        "Age at which tiered segments leave the local disk; -2 takes retention.ms.",
    ),
    Key(
        "max.compaction.lag.ms",
        Type.LONG,
        MAX_LONG,
        Range(1),
        Mode.PER_TOPIC,
        "Largest age of a record not yet compacted.",
    ),
    Key("max.message.bytes", Type.INT, 1_048_588, Range(0), Mode.PER_TOPIC, "Largest record batch."),
    Key(
        "message.timestamp.after.max.ms",
        Type.LONG,
        3_600_000,
        Range(0),
        Mode.PER_TOPIC,
        "How far a record's time may lie after the broker's.",
    ),
    Key(
        "message.timestamp.before.max.ms",
        Type.LONG,
        MAX_LONG,
        Range(0),
        Mode.PER_TOPIC,
        "How far a record's time may lie before the broker's.",
    ),
    Key(
        "message.timestamp.type",
        Type.STRING,
        "CreateTime",
        OneOf(("CreateTime", "LogAppendTime")),
        Mode.PER_TOPIC,
        "Whose time a record carries: the producer's or the broker's.",
    ),
    Key(
        "min.cleanable.dirty.ratio",
        Type.DOUBLE,
        0.5,
        Range(0, 1),
        Mode.PER_TOPIC,
        "Share of the log that must be uncompacted before it is compacted.",
    ),
    Key("min.compaction.lag.ms", Type.LONG, 0, Range(0), Mode.PER_TOPIC, "Least age of a record to be compacted."),
    Key("min.insync.replicas", Type.INT, 1, Range(1), Mode.PER_TOPIC, "Replicas that must be in sync for acks=all."),
    Key(
        "preallocate",
        Type.BOOLEAN,
        False,
        None,
        Mode.PER_TOPIC,
        "Accepted without effect: files grow as they are written.",
    ),
    Key("remote.log.copy.disable", Type.BOOLEAN, False, None, Mode.PER_TOPIC, "Copy nothing more to the tier."),
    Key(
        "remote.log.delete.on.disable",
        Type.BOOLEAN,
        False,
        None,
        Mode.PER_TOPIC,
        "Delete what is in the tier when it is switched off.",
    ),
    Key("remote.storage.enable", Type.BOOLEAN, False, None, Mode.PER_TOPIC, "Keep old segments in the tier."),
    Key(
        "retention.bytes",
        Type.LONG,
        -1,
        None,
        Mode.PER_TOPIC,
        "Size of a partition above which its oldest segments are deleted, -1 never.",
    ),
    Key(
        "retention.ms",
        Type.LONG,
        604_800_000,
        Range(-1),
        Mode.PER_TOPIC,
        "Age at which segments are deleted, -1 never.",
    ),
    Key(
        "segment.bytes", Type.INT, 1_073_741_824, Range(1_048_576), Mode.PER_TOPIC, "Size at which a segment is closed."
    ),
    Key(
        "segment.index.bytes", Type.INT, 10_485_760, Range(4), Mode.PER_TOPIC, "Size at which an offset index is full."
    ),
    Key("segment.jitter.ms", Type.LONG, 0, Range(0), Mode.PER_TOPIC, "Most that is taken off the age at random."),
    Key("segment.ms", Type.LONG, 604_800_000, Range(1), Mode.PER_TOPIC, "Age at which a segment is closed."),
    Key(
        "unclean.leader.election.enable",
        Type.BOOLEAN,
        False,
        None,
        Mode.PER_TOPIC,
        "Let a replica out of sync lead when no other is left, at the cost of records.",
    ),
)
