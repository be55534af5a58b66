"""Brokers among each other and with the controller."""

from __future__ import annotations

from typing import Final

from milena.config.definitions import Key, Mode
from milena.config.validators import Range
from milena.config.values import Type

MAX_DOUBLE: Final = 1.7976931348623157e308

KEYS: Final[tuple[Key, ...]] = (
    Key(
        "initial.broker.registration.timeout.ms",
        Type.INT,
        60_000,
        None,
        Mode.READ_ONLY,
        "Time in which a starting broker must be registered, or it ends.",
    ),
    Key(
        "broker.heartbeat.interval.ms", Type.INT, 2000, None, Mode.READ_ONLY, "Time between two heartbeats of a broker."
    ),
    Key(
        "broker.session.timeout.ms",
        Type.INT,
        9000,
        None,
        Mode.READ_ONLY,
        "Silence after which the controller fences a broker.",
    ),
    Key(
        "broker.connection.loss.fencing.enable",
        Type.BOOLEAN,
        True,
        None,
        Mode.READ_ONLY,
        "Fence a broker whose heartbeat connection has ended and whose listeners refuse connections.",
    ),
    Key(
        "forwarded.request.visible.timeout.ms",
        Type.INT,
        1000,
        Range(0),
        Mode.READ_ONLY,
        "Longest time that a change is kept unanswered until the broker that forwarded it knows of it; 0: not at all.",
    ),
    Key(
        "controlled.shutdown.enable",
        Type.BOOLEAN,
        True,
        None,
        Mode.READ_ONLY,
        "Hand leaderships over before a broker stops.",
    ),
    Key(
        "controller.socket.timeout.ms",
        Type.INT,
        30_000,
        None,
        Mode.READ_ONLY,
        "Longest wait for a controller's answer.",
    ),
    Key(
        "replica.lag.time.max.ms",
        Type.LONG,
        30_000,
        None,
        Mode.READ_ONLY,
        "Time without catching up after which a follower is out of sync.",
    ),
    Key(
        "replica.selector.class",
        Type.STRING,
        None,
        None,
        Mode.READ_ONLY,
        "How a nearer replica is found for a consumer that tells its rack.",
    ),
    Key(
        "replica.socket.timeout.ms",
        Type.INT,
        30_000,
        None,
        Mode.READ_ONLY,
        "Longest wait for the answer to a follower's fetch.",
    ),
    Key(
        "replica.socket.receive.buffer.bytes",
        Type.INT,
        65_536,
        None,
        Mode.READ_ONLY,
        "Accepted without effect: the system sizes socket buffers.",
    ),
    Key(
        "replica.fetch.max.bytes",
        Type.INT,
        1_048_576,
        Range(0),
        Mode.READ_ONLY,
        "Bytes of one partition that a follower asks for.",
    ),
    Key(
        "replica.fetch.wait.max.ms",
        Type.INT,
        500,
        None,
        Mode.READ_ONLY,
        "Longest wait of a leader that has nothing new for a follower.",
    ),
    Key("replica.fetch.backoff.ms", Type.INT, 1000, Range(0), Mode.READ_ONLY, "Pause of a follower after an error."),
    Key("replica.fetch.min.bytes", Type.INT, 1, None, Mode.READ_ONLY, "Least bytes that end a follower's wait."),
    Key(
        "replica.fetch.response.max.bytes",
        Type.INT,
        10_485_760,
        Range(0),
        Mode.READ_ONLY,
        "Most bytes of a whole response to a follower.",
    ),
    Key(
        "replica.high.watermark.checkpoint.interval.ms",
        Type.LONG,
        5000,
        None,
        Mode.READ_ONLY,
        "Time between two checkpoints of the high watermarks.",
    ),
    Key("num.replica.fetchers", Type.INT, 1, Range(1), Mode.CLUSTER_WIDE, "Fetchers of a follower for each leader."),
    Key(
        "num.replica.alter.log.dirs.threads",
        Type.INT,
        None,
        None,
        Mode.READ_ONLY,
        "Threads that move replicas between folders.",
    ),
    Key(
        "auto.leader.rebalance.enable",
        Type.BOOLEAN,
        True,
        None,
        Mode.READ_ONLY,
        "Give leadership back to preferred replicas.",
    ),
    Key(
        "leader.imbalance.check.interval.seconds",
        Type.LONG,
        300,
        Range(1),
        Mode.READ_ONLY,
        "Time between two looks for preferred replicas that do not lead.",
    ),
    Key(
        "unclean.leader.election.interval.ms",
        Type.LONG,
        300_000,
        Range(1),
        Mode.READ_ONLY,
        "Time between two looks for partitions to be led by a replica out of sync.",
    ),
    Key("quota.window.num", Type.INT, 11, Range(1), Mode.READ_ONLY, "Accepted; quotas are not there yet."),
    Key("quota.window.size.seconds", Type.INT, 1, Range(1), Mode.READ_ONLY, "Accepted; quotas are not there yet."),
    Key(
        "replication.quota.window.num",
        Type.INT,
        11,
        Range(1),
        Mode.READ_ONLY,
        "Samples kept for replication throttles.",
    ),
    Key(
        "replication.quota.window.size.seconds",
        Type.INT,
        1,
        Range(1),
        Mode.READ_ONLY,
        "Length of one sample for replication throttles.",
    ),
    Key(
        "alter.log.dirs.replication.quota.window.num",
        Type.INT,
        11,
        Range(1),
        Mode.READ_ONLY,
        "Samples kept for the throttle of moves between log directories.",
    ),
    Key(
        "alter.log.dirs.replication.quota.window.size.seconds",
        Type.INT,
        1,
        Range(1),
        Mode.READ_ONLY,
        "Length of one sample for the throttle of moves between log directories.",
    ),
    Key("controller.quota.window.num", Type.INT, 11, Range(1), Mode.READ_ONLY, "Accepted; quotas are not there yet."),
    Key(
        "controller.quota.window.size.seconds",
        Type.INT,
        1,
        Range(1),
        Mode.READ_ONLY,
        "Accepted; quotas are not there yet.",
    ),
)

UNLIMITED: Final = 2**63 - 1

DYNAMIC_ONLY: Final[tuple[Key, ...]] = (
    Key(
        "leader.replication.throttled.rate",
        Type.LONG,
        UNLIMITED,
        Range(0),
        Mode.CLUSTER_WIDE,
        "Bytes a second for the followers of leader.replication.throttled.replicas.",
    ),
    Key(
        "follower.replication.throttled.rate",
        Type.LONG,
        UNLIMITED,
        Range(0),
        Mode.CLUSTER_WIDE,
        "Bytes a second fetched for follower.replication.throttled.replicas.",
    ),
    Key(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        Type.LONG,
        UNLIMITED,
        Range(0),
        Mode.CLUSTER_WIDE,
        "Bytes a second that moves between log directories may copy.",
    ),
)
"""Kafka takes these from dynamic configuration alone, and does not list them among a broker's keys."""
