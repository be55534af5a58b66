"""The part of the controller that the handlers of commands use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.node.api import Fields

T = TypeVar("T")
F = TypeVar("F", bound=Fields)


class Committing(Protocol):
    """The state on which commands decide, and the function that writes their records."""

    @property
    def state(self) -> ControllerState: ...

    def commit(self, result: Result[T], answer: Callable[[T], F]) -> F | Awaitable[F]:
        """Write a command's records now; the response is sent once they are committed. Raises KafkaError."""
        ...
