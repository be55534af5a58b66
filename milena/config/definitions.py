"""One configuration key: its type, default, validator and update mode (Kafka's ConfigDef.ConfigKey)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from milena.config.validators import Names, Validator
from milena.config.values import ConfigError, Type, Value, parse


class Mode(Enum):
    """Where a key may be changed while the cluster runs (Kafka's ``dynamicConfigUpdateMode``)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    PER_TOPIC = "per-topic"
    """A topic's key: can always be changed."""


class Required(Enum):
    """The default of keys that have none."""

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


def nearest(name: str, known: list[str]) -> str | None:
    """Return the known key most similar to ``name``, for an error message."""
    import difflib

    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return found[0] if found else None


def unknown(name: str, source: str, known: list[str]) -> ConfigError:
    hint = nearest(name, known)
    return ConfigError(f"{source}: unknown configuration key {name!r}" + (f"; did you mean {hint!r}?" if hint else ""))
