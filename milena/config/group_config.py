"""The configuration of single groups (KIP-848, KIP-932, KIP-1071): stored and described; such groups are not supported.

Defaults and bounds are those of Kafka's broker keys, which cannot be changed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from milena.config.definitions import Key, Mode
from milena.config.validators import OneOf, Range, Validator
from milena.config.values import ConfigError, Type, Value, invalid

DURATION: Final = re.compile(
    r"\+?P(?=\d|T\d)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?", re.IGNORECASE | re.ASCII
)
"""The format of java.time.Duration, without negative parts."""


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """``earliest``, ``latest`` or ``by_duration:`` and an ISO 8601 duration."""

    def check(self, name: str, value: Value) -> None:
        text = str(value)
        kind, _, duration = text.partition(":")
        if text not in ("earliest", "latest") and not (kind == "by_duration" and DURATION.fullmatch(duration)):
            raise invalid(name, value, "It must be earliest, latest or by_duration:PnDTnHnMn.nS")


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A key of groups, the broker key with its default, and the bounds from the broker's keys (inclusive)."""

    key: Key
    synonym: str | None = None
    low: int | None = None
    high: int | None = None
    only_if_set: bool = False
    """Whether the bounds apply only if the group sets the key."""


def _number(
    name: str, default: int, doc: str, *, least: int = 1, low: int | None = None, high: int | None = None
) -> GroupKey:
    key = Key(name, Type.INT, default, Range(least), Mode.CLUSTER_WIDE, doc)
    return GroupKey(key, f"group.{name}", low, high, only_if_set=name.endswith(".assignment.interval.ms"))


def _other(name: str, kind: Type, default: Value, validator: Validator | None, doc: str) -> GroupKey:
    return GroupKey(Key(name, kind, default, validator, Mode.CLUSTER_WIDE, doc))


def _common(family: str) -> tuple[GroupKey, ...]:
    return (
        _number(
            f"{family}.session.timeout.ms",
            45_000,
            "Time without a heartbeat after which a member is removed from its group.",
            low=45_000,
            high=60_000,
        ),
        _number(f"{family}.heartbeat.interval.ms", 5000, "Time between a member's heartbeats.", low=5000, high=15_000),
        _number(
            f"{family}.assignment.interval.ms",
            1000,
            "Minimum time between two assignments.",
            least=0,
            low=0,
            high=15_000,
        ),
    )


_ALL: Final = (
    *_common("consumer"),
    *_common("share"),
    *_common("streams"),
    _number(
        "share.record.lock.duration.ms",
        30_000,
        "Time for which a record is acquired.",
        least=1000,
        low=15_000,
        high=60_000,
    ),
    _number("share.delivery.count.limit", 5, "Maximum number of deliveries of a record.", least=2, low=2, high=10),
    _number(
        "share.partition.max.record.locks", 2000, "Most acquired records of a partition.", least=100, low=100, high=4000
    ),
    _other("share.auto.offset.reset", Type.STRING, "latest", OffsetReset(), "Where a share group begins."),
    _other(
        "share.isolation.level",
        Type.STRING,
        "read_uncommitted",
        OneOf(("read_committed", "read_uncommitted")),
        "How records of transactions are read.",
    ),
    _other("share.renew.acknowledge.enable", Type.BOOLEAN, True, None, "Whether acquired records may be renewed."),
    _number("streams.num.standby.replicas", 0, "Standby replicas of each task.", least=0, high=2),
    _number("streams.initial.rebalance.delay.ms", 3000, "Delay of a new group's first assignment.", least=0),
)
GROUP_KEYS: Final[Mapping[str, GroupKey]] = {one.key.name: one for one in _ALL}


def validate_group_config(values: Mapping[str, str]) -> None:
    """Check the values that a group sets. Raises ConfigError (INVALID_CONFIG)."""
    unknown = [name for name in values if name not in GROUP_KEYS]
    if unknown:
        raise ConfigError(f"Unknown group config name: {unknown[0]}")
    effective = {
        name: one.key.parse(values[name]) if name in values else one.key.default for name, one in GROUP_KEYS.items()
    }
    for name, one in GROUP_KEYS.items():
        value = effective[name]
        if not isinstance(value, int) or (one.only_if_set and name not in values):
            continue
        if one.low is not None and value < one.low:
            raise ConfigError(f"{name} must be at least {one.low}")
        if one.high is not None and value > one.high:
            raise ConfigError(f"{name} must be at most {one.high}")
    for family in ("consumer", "share", "streams"):
        session, heartbeat = f"{family}.session.timeout.ms", f"{family}.heartbeat.interval.ms"
        if _int(effective[session]) <= _int(effective[heartbeat]):
            raise ConfigError(f"{session} must be above {heartbeat}")


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
