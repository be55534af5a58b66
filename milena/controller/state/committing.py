"""What the handlers of commands use of their controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.node.api import Fields

T = TypeVar("T")
F = TypeVar("F", bound=Fields)


class Committing(Protocol):
    """The state that commands decide on, and the way to write what they decide."""

    @property
    def state(self) -> ControllerState: ...

    def commit(self, result: Result[T], answer: Callable[[T], F]) -> F | Awaitable[F]:
        """Write a command's records now; its answer is given once they are committed. Raises KafkaError."""
        ...
