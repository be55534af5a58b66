"""Keys that neither Kafka nor Milena has: the nearest known key, or why a key of another product has no effect.

Kafka's brokers ignore unknown keys silently, because they may belong to a plug-in. Here one warning lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from milena.config.definitions import similarity
from milena.config.keys import REMOVED, REMOVED_FROM_MILENA, TOPIC_KEYS, Keys, first_release
from milena.config.sources import Setting, variable_of
from milena.config.synonyms import BROKER_SYNONYMS
from milena.releases import KEY

NEAR: Final = 0.85
"""From this similarity to a known key on, a key counts as a near miss: one or two wrong characters."""
SIMILAR: Final = 0.7
"""From this similarity on, the warning names the known key."""

_BITNAMI: Final = "a variable of Bitnami's image"
_CREATE_TOPICS: Final = "a variable of other images; create topics with `milena topic create`"
_TLS_SCRIPTS: Final = "read by the scripts of Kafka's images for TLS"
_CLIENTS: Final = "a key of clients"
FOREIGN: Final[Mapping[str, str]] = {
    "acks": _CLIENTS,
    "auto.offset.reset": _CLIENTS,
    "bootstrap.servers": _CLIENTS,
    "brokers": _CLIENTS,
    "group.id": _CLIENTS,
    "key.deserializer": _CLIENTS,
    "key.serializer": _CLIENTS,
    "max.request.size": _CLIENTS,
    "value.deserializer": _CLIENTS,
    "value.serializer": _CLIENTS,
    "certificate.password": _BITNAMI,
    "client.passwords": _BITNAMI,
    "client.users": _BITNAMI,
    "controller.password": _BITNAMI,
    "controller.user": _BITNAMI,
    "enable.kraft": _BITNAMI,
    "extra.flags": _BITNAMI,
    "initial.controllers": _BITNAMI,
    "inter.broker.password": _BITNAMI,
    "inter.broker.user": _BITNAMI,
    "kraft.cluster.id": f"{_BITNAMI}; here it is CLUSTER_ID",
    "skip.kraft.storage.init": _BITNAMI,
    "tls.client.auth": _BITNAMI,
    "tls.type": _BITNAMI,
    "create.topics": _CREATE_TOPICS,
    "create.topics.separator": _CREATE_TOPICS,
    "ssl.key.credentials": _TLS_SCRIPTS,
    "ssl.keystore.credentials": _TLS_SCRIPTS,
    "ssl.keystore.filename": _TLS_SCRIPTS,
    "ssl.truststore.credentials": _TLS_SCRIPTS,
    "ssl.truststore.filename": _TLS_SCRIPTS,
    "group.share.enable": "a preview key of Kafka 3.9 and 4.0; share groups are not supported yet",
    "kafka.csv.metrics.reporter.enabled": "removed from Kafka",
    "log.cleaner.min.cleanable.dirty.ratio": "not a key of Kafka; it is log.cleaner.min.cleanable.ratio",
    "log.flush.interval": "removed from Kafka",
    "log.retention.size": "removed from Kafka",
}
"""Keys of other products and releases that configurations of Kafka have."""
FOREIGN_PREFIXES: Final[Mapping[str, str]] = {
    "confluent.": "a key of Confluent Server",
    "connect.": "a key of Kafka Connect",
    "cruise.control.": "a key of Cruise Control, whose metrics reporter Milena does not run",
    "ksql.": "a key of ksqlDB",
    "kafka.rest.": "a key of Confluent Server",
    "opa.authorizer.": "a key of an authorizer",
    "ranger.": "a key of an authorizer",
    "rest.": "a key of Confluent's REST proxy",
    "schema.registry.": "a key of Confluent's schema registry",
    "strimzi.": "a key of Strimzi's plug-ins",
    "zookeeper.": "removed from Kafka",
}


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A setting whose key is not known."""

    name: str
    source: str
    reason: str | None
    """Why a key of another product or release has no effect; None if the key is not known at all."""
    nearest: str | None
    """The most similar known key, if one is similar."""
    near_miss: bool
    """Whether the key is probably a misspelt known key."""

    @property
    def error(self) -> str:
        """The message where an unknown key is an error."""
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else f" ({self.reason})" if self.reason else ""
        return f"{self.source}: unknown configuration key {self.name!r}{hint}"

    def __str__(self) -> str:
        hint = f" ({self.reason})" if self.reason else f" (did you mean {self.nearest}?)" if self.nearest else ""
        return f"{self.source}: {self.name}{hint}"


def unknown_key(name: str, setting: Setting, keys: Keys) -> UnknownKey:
    """Describe a key that is not one of ``keys``."""
    newer = first_release(name)
    reason = reason_of(name)
    if newer is not None and reason is None:
        reason = f"a key of Kafka {newer}; {KEY} is {keys.release}"
    if reason is not None:
        return UnknownKey(name, setting.source, reason, None, near_miss=False)
    found, how_similar = similarity(name.lower(), (*keys.broker, *sorted(keys.unsupported)))
    nearest = found if how_similar >= SIMILAR else None
    return UnknownKey(name, setting.source, None, nearest, near_miss=how_similar >= NEAR)


def reason_of(name: str) -> str | None:
    """Return why a key of another product or release has no effect, or None."""
    if name in REMOVED_FROM_MILENA:
        return "removed from Milena"
    if name in REMOVED:
        return "removed from Kafka"
    if name in FOREIGN:
        return FOREIGN[name]
    if name in TOPIC_KEYS:
        brokers = BROKER_SYNONYMS.get(name)
        return f"a key of topics; for brokers it is {brokers[0][0]}" if brokers else "a key of topics"
    if name.startswith("cfg."):
        return f"Bitnami's name; here the variable is {variable_of(name.removeprefix('cfg.'))}"
    return next((reason for prefix, reason in FOREIGN_PREFIXES.items() if name.startswith(prefix)), None)


def listed(keys: Sequence[UnknownKey]) -> str:
    """Return all unknown keys as one line."""
    return "; ".join(map(str, keys))
