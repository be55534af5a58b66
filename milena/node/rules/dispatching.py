"""Where a request continues if no rule keeps it (``node.serving.dispatch`` implements it)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from milena.node.api import RequestContext
    from milena.protocol.errors import KafkaError
    from milena.protocol.schemas.registry import Role


class Dispatching(Protocol):
    """Runs or refuses requests."""

    @property
    def role(self) -> Role: ...
    def run(self, ctx: RequestContext, body: memoryview) -> None: ...
    def fail(self, ctx: RequestContext, body: memoryview, error: KafkaError) -> None: ...
