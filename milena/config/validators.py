"""Validators of single values, with Kafka's error messages. Each raises ConfigError."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from milena.config.values import MAX_INT, ConfigError, Value, invalid, render
from milena.runtime.numbers import whole
from milena.runtime.tcp.hosts import LAST_PORT, fault_of


class Validator(Protocol):
    def check(self, name: str, value: Value) -> None: ...


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two inclusive bounds; None is unbounded."""

    low: float | None = None
    high: float | None = None

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, int | float)
        if self.low is not None and value < self.low:
            raise invalid(name, render(value), f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise invalid(name, render(value), f"Value must be no more than {self.high}")


@dataclass(frozen=True, slots=True)
class OneOf:
    choices: tuple[str, ...]

    def check(self, name: str, value: Value) -> None:
        if value not in self.choices:
            raise invalid(name, value, f"String must be one of: {', '.join(self.choices)}")


@dataclass(frozen=True, slots=True)
class NonEmpty:
    """A string that may be null, but not empty."""

    def check(self, name: str, value: Value) -> None:
        if value == "":
            raise invalid(name, value, "String must be non-empty")


@dataclass(frozen=True, slots=True)
class Names:
    """A list; its items are of ``choices``, if there are any."""

    choices: tuple[str, ...] = ()
    may_be_empty: bool = False

    def check(self, name: str, value: Value) -> None:
        if value is None:
            return
        assert isinstance(value, tuple)
        if not value and not self.may_be_empty:
            valid = f"[{', '.join(self.choices)}]" if self.choices else "any non-empty value"
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {valid}")
        for item in value:
            if self.choices:
                OneOf(self.choices).check(name, item)
            elif not item:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")


@dataclass(frozen=True, slots=True)
class GzipLevel:
    def check(self, name: str, value: Value) -> None:
        if value != -1 and not (isinstance(value, int) and 1 <= value <= 9):
            raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


VOTER: Final = re.compile(r"(?P<id>[^@]*)@(?P<address>[^@]*)")
HOST_PORT: Final = re.compile(r"(?:[^:/\[]*://)?\[?(?P<host>[0-9a-zA-Z\-%._:]*?)\]?:(?P<port>[0-9]+)")


def split_address(text: str) -> tuple[str, int] | None:
    """Return (host, port) of ``host:port`` or ``[ipv6]:port``; None if the text is neither, or is not a valid host
    name."""
    found = HOST_PORT.fullmatch(text)
    port = whole(found["port"]) if found is not None else None
    if found is None or fault_of(found["host"]) is not None or port is None or port > LAST_PORT:
        return None
    return found["host"], port


@dataclass(frozen=True, slots=True)
class Voters:
    """``id@host:port`` entries."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        for entry in value:
            form = "Each entry should be in the form `{id}@{host}:{port}`."
            found = VOTER.fullmatch(entry)
            if found is None:
                raise ConfigError(f"Invalid configuration value for {name}. {form}")
            voter = whole(found["id"])
            if voter is None or not -MAX_INT - 1 <= voter <= MAX_INT:
                raise ConfigError(f"Failed to parse voter ID as an integer from {found['id']}")
            if split_address(found["address"]) is None:
                raise ConfigError(f"Failed to parse host name from entry {entry} for the configuration {name}. {form}")


@dataclass(frozen=True, slots=True)
class Addresses:
    """``host:port`` entries."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        for entry in value:
            if split_address(entry) is None:
                raise ConfigError(
                    f"Failed to parse host name from {entry} for the configuration {name}. "
                    'Each entry should be in the form "{host}:{port}"'
                )


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """``*`` or ``partition:broker`` pairs; empty items are allowed, because tools write them."""

    def check(self, name: str, value: Value) -> None:
        assert isinstance(value, tuple)
        if "".join(value) != "*" and not all(re.fullmatch(r"([0-9]+:[0-9]+)?", pair) for pair in value):
            raise invalid(
                name,
                f"[{', '.join(value)}]",
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )
