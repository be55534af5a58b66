"""There are no transactions yet: what is said of who asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext

if TYPE_CHECKING:
    from milena.runtime.limited_log import LimitedLog


class Refusing(Protocol):
    """Where refusals are logged."""

    @property
    def client_log(self) -> LimitedLog: ...


def log_refusal(node: Refusing, ctx: RequestContext, transactional_id: str) -> None:
    """Say why in the log: the client's own message cannot."""
    node.client_log.warning(
        "transactions are not supported yet", transactional_id=transactional_id, client=ctx.client_host
    )
