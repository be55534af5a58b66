"""The entries of DescribeConfigs: each key's value, its source, and its synonyms.

Follows Kafka's ConfigHelper: a value's source is that of its first synonym, and a value without synonyms is a default.
Pure functions of this node's configuration and the metadata image.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from milena.config.broker_config import SYNONYMS
from milena.config.definitions import Key, Mode, Required
from milena.config.group_config import GROUP_KEYS
from milena.config.keys import DYNAMIC_KEYS, INTERNAL
from milena.config.metrics_config import METRICS_KEYS
from milena.config.node_config import NodeConfig
from milena.config.synonyms import BROKER_SYNONYMS
from milena.config.topic_config import effective_value
from milena.config.values import ConfigError, render
from milena.node.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    MetadataImage,
)
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.topic_names import topic_name_problem
from milena.runtime.log_levels import current_levels
from milena.runtime.numbers import whole

if TYPE_CHECKING:
    from milena.protocol.apis import (
        DescribeConfigsResourceResultFields,
        DescribeConfigsResultFields,
        DescribeConfigsSynonymFields,
    )

T = TypeVar("T")
CONFIGURED = frozenset(
    {TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE}
)
"""The resource types that have a configuration."""
UNKNOWN_TYPE = 0
"""The type of loggers and of keys that Kafka does not know."""


class ConfigSource(IntEnum):
    """Kafka's ConfigSource."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigView:
    """The options of one request. ``keys`` None selects all."""

    config: NodeConfig
    image: MetadataImage
    keys: Collection[str] | None
    synonyms: bool
    documentation: bool

    def describe(self, resource_type: int, name: str) -> list[DescribeConfigsResourceResultFields]:
        """Return the entries of one resource. Raises KafkaError if the resource does not exist, or is another node."""
        if resource_type == TOPIC_RESOURCE:
            return self._topic(name)
        if resource_type == BROKER_RESOURCE:
            return self._broker(name)
        if resource_type == BROKER_LOGGER_RESOURCE:
            self._require_own_id(name, "")
            levels = self._selected(current_levels().items())
            return [_logger(key, level) for key, level in levels]
        if resource_type not in (CLIENT_METRICS_RESOURCE, GROUP_RESOURCE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource has no name")
        own = self.image.config(resource_type, name)
        return self._group(own) if resource_type == GROUP_RESOURCE else self._metrics(own)

    def _group(self, own: Mapping[str, str]) -> list[DescribeConfigsResourceResultFields]:
        entries = []
        for name, group_key in self._selected(GROUP_KEYS.items()):
            default, value = _default_and_value(group_key.key, own)
            synonyms = [_synonym(group_key.synonym or name, default, ConfigSource.DEFAULT)]
            if name in own:
                synonyms.insert(0, _synonym(name, value, ConfigSource.GROUP))
            entries.append(self._entry(name, group_key.key, value, synonyms, read_only=False))
        return entries

    def _metrics(self, own: Mapping[str, str]) -> list[DescribeConfigsResourceResultFields]:
        entries = []
        for name, key in self._selected(METRICS_KEYS.items()):
            _, value = _default_and_value(key, own)
            synonyms = [_synonym(name, value, ConfigSource.CLIENT_METRICS)] if name in own else []
            entries.append(self._entry(name, key, value, synonyms, read_only=False))
        return entries

    def _topic(self, name: str) -> list[DescribeConfigsResourceResultFields]:
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in self.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.topic_entries(self.image.config(TOPIC_RESOURCE, name))

    def topic_entries(self, own: Mapping[str, str]) -> list[DescribeConfigsResourceResultFields]:
        """Return the entries of a topic with the configured values ``own``; the topic need not exist."""
        entries = []
        for key_name, key in self._selected(self.config.keys.topic.items()):
            if key_name.startswith("internal.") and key_name not in own:
                continue
            value = render(effective_value(self.config, own, key_name))
            named = BROKER_SYNONYMS.get(key_name)
            synonyms = self._synonyms(named[0][0]) if named else []
            if key_name in own:
                synonyms.insert(0, _synonym(key_name, value, ConfigSource.TOPIC))
            entries.append(self._entry(key_name, key, value, synonyms, read_only=False))
        return entries

    def _broker(self, name: str) -> list[DescribeConfigsResourceResultFields]:
        if not name:
            return [
                self._entry(
                    key_name,
                    DYNAMIC_KEYS.get(key_name),
                    value,
                    [
                        synonym
                        for synonym in self._synonyms(key_name)
                        if synonym["source"] == ConfigSource.DYNAMIC_DEFAULT_BROKER
                    ],
                    read_only=not _is_dynamic(key_name),
                )
                for key_name, value in self._selected(self.config.dynamic_default.items())
            ]
        self._require_own_id(name, " or empty string")
        config = self.config
        values = {**config.originals, **config.dynamic_default, **config.dynamic_broker} | {
            key: self._broker_value(key) for key in config.keys.broker.keys() - INTERNAL
        }
        return [
            self._entry(
                key_name,
                DYNAMIC_KEYS.get(key_name),
                value,
                self._synonyms(key_name),
                read_only=not _is_dynamic(key_name),
            )
            for key_name, value in self._selected(values.items())
        ]

    def _broker_value(self, key: str) -> str | None:
        """Return the value of a broker key. A dynamic value with variables is returned as it was set, so that a client
        cannot read what config providers read. Kafka returns the value of the variable."""
        config = self.config
        text = config.dynamic_broker.get(key) or config.dynamic_default.get(key, "")
        return text if "${" in text else render(config.get(key))

    def _require_own_id(self, name: str, otherwise: str) -> None:
        mine = self.config.node_id
        number = whole(name)
        if number is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if number != mine:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {mine}{otherwise}, but received {name}",
            )

    def _selected(self, items: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
        selected = (item for item in items if self.keys is None or item[0] in self.keys)
        return sorted(selected, key=lambda item: item[0])

    def _synonyms(self, name: str) -> list[DescribeConfigsSynonymFields]:
        """Return the values of a broker key and its synonyms in order of precedence, from the first with its own name
        on."""
        names = _synonym_group(name)
        config, keys = self.config, self.config.keys
        levels: list[tuple[ConfigSource, Callable[[str], str | None]]] = [
            (ConfigSource.DYNAMIC_BROKER, config.dynamic_broker.get),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.dynamic_default.get),
            (ConfigSource.STATIC_BROKER, config.originals.get),
            (ConfigSource.DEFAULT, lambda key: render(keys.defaults.get(key)) if key in keys.broker else None),
        ]
        synonyms = [
            _synonym(key, None if _is_sensitive(key) else value, source)
            for source, read in levels
            for key in names
            if (value := read(key)) is not None
        ]
        first = next((at for at, synonym in enumerate(synonyms) if synonym["name"] == name), len(synonyms))
        return synonyms[first:]

    def _entry(
        self,
        name: str,
        key: Key | None,
        value: str | None,
        synonyms: list[DescribeConfigsSynonymFields],
        *,
        read_only: bool,
    ) -> DescribeConfigsResourceResultFields:
        sensitive = key is None or key.sensitive
        return {
            "name": name,
            "value": None if sensitive else value,
            "read_only": read_only,
            "config_source": int(synonyms[0]["source"] if synonyms else ConfigSource.DEFAULT),
            "is_sensitive": sensitive,
            "synonyms": synonyms if self.synonyms else [],
            "config_type": UNKNOWN_TYPE if key is None else key.type.value,
            "documentation": key.doc if key is not None and self.documentation else None,
        }


def _default_and_value(key: Key, own: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the default and the value of a key of groups or client metrics. A value that cannot be parsed is returned
    as it was set."""
    default = None if isinstance(key.default, Required) else render(key.default)
    if key.name not in own:
        return default, default
    try:
        return default, render(key.parse(own[key.name]))
    except ConfigError:
        return default, own[key.name]


def _synonym(name: str, value: str | None, source: ConfigSource) -> DescribeConfigsSynonymFields:
    return {"name": name, "value": value, "source": int(source)}


def _logger(name: str, level: str) -> DescribeConfigsResourceResultFields:
    """The entry of a logger. As in Kafka, its type is 0, UNKNOWN."""
    return {
        "name": name,
        "value": level,
        "read_only": False,
        "config_source": int(ConfigSource.DYNAMIC_BROKER_LOGGER),
        "is_sensitive": False,
        "synonyms": [],
        "config_type": UNKNOWN_TYPE,
        "documentation": None,
    }


def _synonym_group(name: str) -> tuple[str, ...]:
    """Return ``name`` and its synonyms in order of precedence (``log.retention.ms`` before
    ``log.retention.minutes``)."""
    for first, others in SYNONYMS.items():
        if name == first or name in others:
            return (first, *others)
    return (name,)


def _is_dynamic(name: str) -> bool:
    key = DYNAMIC_KEYS.get(name)
    return key is not None and key.mode is not Mode.READ_ONLY


def _is_sensitive(name: str) -> bool:
    """Whether to hide the value. As in Kafka, values of unknown keys are hidden, since they may be secrets."""
    key = DYNAMIC_KEYS.get(name)
    return key is None or key.sensitive


def all_results(results: list[DescribeConfigsResultFields]) -> list[DescribeConfigsResultFields]:
    """Return the results of one request. As in Kafka's ConfigHelper, an unsupported resource type fails all of them."""
    unsupported = next(
        (result["resource_type"] for result in results if result["resource_type"] not in CONFIGURED), None
    )
    if unsupported is None:
        return results
    code, message = int(ErrorCode.INVALID_REQUEST), f"Unsupported resource type: {unsupported}"
    return [
        {
            "error_code": code,
            "error_message": message,
            "resource_type": result["resource_type"],
            "resource_name": result["resource_name"],
            "configs": [],
        }
        for result in results
    ]
