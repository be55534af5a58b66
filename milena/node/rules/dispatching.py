"""The interface that runs a request if no rule intercepts it; ``node.serving.dispatch`` implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from milena.node.api import RequestContext
    from milena.protocol.errors import KafkaError
    from milena.protocol.schemas.registry import Role


class RequestDispatcher(Protocol):
    """Runs requests, or answers them with an error."""

    @property
    def role(self) -> Role: ...
    def run(self, ctx: RequestContext, body: memoryview) -> None: ...
    def fail(self, ctx: RequestContext, body: memoryview, error: KafkaError) -> None: ...
