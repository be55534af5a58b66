"""What DescribeConfigs says of a key: its value, where it comes from, and which synonyms stand behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from milena.config.broker_config import INTERNAL, KEYS, SYNONYMS
from milena.config.definitions import Key, Mode, Required
from milena.config.node_config import NodeConfig
from milena.config.topic_config import BROKER_SYNONYMS, TOPIC_KEYS, effective_value
from milena.config.values import render


class Source(IntEnum):
    """Kafka's numbers for the place of a value."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Described:
    name: str
    value: str | None
    """None where there is no value, and for passwords."""
    read_only: bool
    sensitive: bool
    source: Source
    type: int
    doc: str
    synonyms: tuple[Synonym, ...]


def describe_broker(config: NodeConfig, *, default_only: bool = False) -> list[Described]:
    """All supported keys of a broker, by name; with ``default_only`` the dynamic defaults of all brokers alone."""
    if default_only:
        return [
            _described(key, text, (Synonym(name, text, Source.DYNAMIC_DEFAULT_BROKER),), read_only=False)
            for name, text in sorted(config.dynamic_default.items())
            if (key := KEYS.get(name)) is not None
        ]
    found = [_without_effect(name) for name in sorted(config.originals) if name not in KEYS]
    for name, key in sorted(KEYS.items()):
        if name in INTERNAL and name not in config.originals:
            continue
        names = (name, *SYNONYMS.get(name, ()))
        read_only = all(KEYS[other].mode is Mode.READ_ONLY for other in names)
        synonyms = _from_own_name(name, _broker_synonyms(config, names))
        found.append(_described(key, render(config.get(name)), synonyms, read_only=read_only))
    return found


def describe_topic(config: NodeConfig, overrides: Mapping[str, str]) -> list[Described]:
    """All keys of a topic with these overrides, by name."""
    found = []
    for name, key in sorted(TOPIC_KEYS.items()):
        if name.startswith("internal.") and name not in overrides:
            continue
        value = render(effective_value(config, overrides, name))
        behind = [broker_name for broker_name, _ in BROKER_SYNONYMS.get(name, ())]
        synonyms = _from_own_name(behind[0], _broker_synonyms(config, behind)) if behind else ()
        if name in overrides:
            synonyms = (Synonym(name, value, Source.TOPIC), *synonyms)
        found.append(_described(key, value, synonyms, read_only=False))
    return found


def _without_effect(name: str) -> Described:
    """A key that was set and is not one of ours. Like Kafka, say nothing of its value: it may be a secret."""
    synonyms = (Synonym(name, None, Source.STATIC_BROKER),)
    return Described(name, None, True, True, Source.STATIC_BROKER, 0, "", synonyms)


def _described(key: Key, value: str | None, synonyms: tuple[Synonym, ...], *, read_only: bool) -> Described:
    return Described(
        name=key.name,
        value=None if key.sensitive else value,
        read_only=read_only,
        sensitive=key.sensitive,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        type=key.type.value,
        doc=key.doc,
        synonyms=synonyms,
    )


def _broker_synonyms(config: NodeConfig, names: Iterable[str]) -> list[Synonym]:
    """What is set under these names, the strongest place first."""
    names = list(names)
    found = [Synonym(n, config.dynamic_broker[n], Source.DYNAMIC_BROKER) for n in names if n in config.dynamic_broker]
    found += [
        Synonym(n, config.dynamic_default[n], Source.DYNAMIC_DEFAULT_BROKER)
        for n in names
        if n in config.dynamic_default
    ]
    found += [Synonym(n, config.originals[n], Source.STATIC_BROKER) for n in names if n in config.originals]
    for name in names:
        default = KEYS[name].default
        if default is not None and not isinstance(default, Required):
            found.append(Synonym(name, render(default), Source.DEFAULT))
    return found


def _from_own_name(name: str, synonyms: list[Synonym]) -> tuple[Synonym, ...]:
    """Kafka leaves out what stands before the first entry under the key's own name."""
    for index, synonym in enumerate(synonyms):
        if synonym.name == name:
            return tuple(synonyms[index:])
    return ()
