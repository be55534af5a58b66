"""The configuration keys, read from ``keys.tsv``: one line per key, grouped by subject.

Columns: kind (``broker``: also controllers; ``dynamic``: only in dynamic configuration; ``topic``), name, type, default
(``NULL``: none; ``REQUIRED``: must be set), validator (see ``_validator``), update mode, ``internal`` if Kafka returns
the key only if it is set, and documentation. Lines of the kinds ``unsupported``, ``removed``
and ``former`` have only a name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from milena.config.definitions import REQUIRED, Key, Mode
from milena.config.validators import (
    Addresses,
    GzipLevel,
    Names,
    NonEmpty,
    OneOf,
    Range,
    ThrottledReplicas,
    Validator,
    Voters,
)
from milena.config.values import Type, Value, parse
from milena.releases import ABSENT, KEY, NEWEST, RELEASES, differences

_TABLE: Final = os.path.join(os.path.dirname(__file__), "keys.tsv")
_SINGLE: Final[Mapping[str, Validator]] = {
    "non-empty": NonEmpty(),
    "list": Names(may_be_empty=True),
    "non-empty list": Names(),
    "gzip level": GzipLevel(),
    "voters": Voters(),
    "addresses": Addresses(),
    "throttled replicas": ThrottledReplicas(),
}


def _read() -> Iterator[list[str]]:
    with open(_TABLE, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                yield line.rstrip("\n").split("\t")


@cache
def _validator(text: str) -> Validator | None:
    """Parse a validator: ``-`` (none), ``1..10`` (bounds, inclusive; ``1..``: no maximum), ``one of a,b``, ``list of
    a,b``, ``non-empty list of a,b``, or a name of ``_SINGLE``."""
    if text == "-":
        return None
    low, dots, high = text.partition("..")
    if dots:
        return Range(_bound(low), _bound(high))
    kind, _, choices = text.partition(" of ")
    match kind if choices else "":
        case "one":
            return OneOf(tuple(choices.split(",")))
        case "list":
            return Names(tuple(choices.split(",")), may_be_empty=True)
        case "non-empty list":
            return Names(tuple(choices.split(",")))
    return _SINGLE[text]


def _bound(text: str) -> float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)


def _key(row: list[str]) -> Key:
    _, name, kind, default, validator, mode, _, doc = row
    type_ = Type[kind]
    match default:
        case "NULL":
            value = None
        case "REQUIRED":
            return Key(name, type_, REQUIRED, _validator(validator), Mode(mode), doc)
        case _:
            value = parse(name, default, type_)
    return Key(name, type_, value, _validator(validator), Mode(mode), doc)


_ROWS: Final = list(_read())

KEYS: Final[Mapping[str, Key]] = {row[1]: _key(row) for row in _ROWS if row[0] == "broker"}
"""The keys of brokers and controllers."""
DYNAMIC_KEYS: Final[Mapping[str, Key]] = {**KEYS, **{row[1]: _key(row) for row in _ROWS if row[0] == "dynamic"}}
"""The keys of dynamic configuration, some of which may not be in a file."""
TOPIC_KEYS: Final[Mapping[str, Key]] = {row[1]: _key(row) for row in _ROWS if row[0] == "topic"}
INTERNAL: Final = frozenset(row[1] for row in _ROWS if row[0] == "broker" and row[6] == "internal")
"""Keys that Kafka returns only if they are set."""
UNSUPPORTED: Final = frozenset(row[1] for row in _ROWS if row[0] == "unsupported")
"""Keys of Kafka that are accepted without effect: each logs one warning."""
REMOVED: Final = frozenset(row[1] for row in _ROWS if row[0] == "removed")
"""Keys of older releases of Kafka, which Kafka ignores too."""
REMOVED_FROM_MILENA: Final = frozenset(row[1] for row in _ROWS if row[0] == "former")
"""Keys of earlier versions of Milena: files and stored metadata may have them, and requests cannot set them."""


_IN_EVERY_RELEASE: Final = frozenset({"config.providers"})
"""Keys that have an effect in releases whose brokers do not define them (``AbstractConfig``)."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one release of Kafka, and Milena's own. A key that the release lacks keeps its default in
    ``defaults``, so that the node can read it."""

    release: str
    broker: Mapping[str, Key]
    dynamic: Mapping[str, Key]
    topic: Mapping[str, Key]
    unsupported: frozenset[str]
    defaults: Mapping[str, Value]


@cache
def keys_of(release: str) -> Keys:
    """Return the keys of a release."""
    of_brokers, of_topics = differences(release, "broker"), differences(release, "topic")
    dynamic = _of_release(DYNAMIC_KEYS, of_brokers)
    absent = {name for name, text in of_brokers.items() if text == ABSENT}
    every = {**DYNAMIC_KEYS, **dynamic}.values()
    return Keys(
        release,
        _of_release(KEYS, of_brokers),
        dynamic,
        _of_release(TOPIC_KEYS, of_topics),
        UNSUPPORTED - absent | differences(release, "former").keys(),
        {key.name: key.default for key in every if key.default is not REQUIRED},
    )


def _of_release(keys: Mapping[str, Key], other: Mapping[str, str]) -> dict[str, Key]:
    return {
        name: key if other.get(name, ABSENT) == ABSENT else _changed(key, other[name])
        for name, key in keys.items()
        if other.get(name) != ABSENT or name in _IN_EVERY_RELEASE
    }


def _changed(key: Key, text: str) -> Key:
    """Return the key with the default and validator of an earlier release. A required key stays required."""
    default, _, validator = text.partition(" ")
    value = key.default if key.default is REQUIRED else parse(key.name, default, key.type)
    return replace(key, default=value, validator=_validator(validator))


def first_release(name: str) -> str | None:
    """Return the first release that has a key of brokers or topics; None if all have it, or none has."""
    for kind, known in (("broker", (*KEYS, *UNSUPPORTED)), ("topic", TOPIC_KEYS)):
        if name in known and differences(RELEASES[0], kind).get(name) == ABSENT:
            return next(release for release in RELEASES if differences(release, kind).get(name) != ABSENT)
    return None


def release_in(settings: Mapping[str, str]) -> str:
    """Return the release that a configuration selects: the newest if it is not set, or not known."""
    chosen = settings.get(KEY, NEWEST).strip()
    return chosen if chosen in RELEASES else NEWEST
