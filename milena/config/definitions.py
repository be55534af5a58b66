"""One configuration key: its type, default, validator and update mode (Kafka's ConfigDef.ConfigKey)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache

from milena.config.validators import Names, Validator
from milena.config.values import Type, Value, parse


class Mode(Enum):
    """For which scope a key may be changed while the cluster runs (Kafka's ``dynamicConfigUpdateMode``)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    PER_TOPIC = "per-topic"
    """A topic's key: can always be changed."""


class Required(Enum):
    """The marker used instead of a default for a key that has none and must be set."""

    REQUIRED = "required"


REQUIRED = Required.REQUIRED


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    type: Type
    default: Value | Required
    validator: Validator | None
    mode: Mode
    doc: str

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    def parse(self, text: str) -> Value:
        """Return the typed and validated value of ``text``. Raises ConfigError with Kafka's message."""
        value = parse(self.name, text, self.type)
        if isinstance(value, tuple) and isinstance(self.validator, Names):
            value = tuple(dict.fromkeys(value))  # Kafka too drops duplicates here, and nowhere else
        if self.validator is not None:
            self.validator.check(self.name, value)
        return value


@cache
def similarity(name: str, known: tuple[str, ...]) -> tuple[str | None, float]:
    """Return the known key most similar to ``name``, and how similar it is: 1 means equal."""
    from difflib import SequenceMatcher, get_close_matches

    found = get_close_matches(name, known, n=1, cutoff=0.6)
    if not found:
        return None, 0.0
    return found[0], SequenceMatcher(None, found[0], name).ratio()
