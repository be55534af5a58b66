"""Logs rejected transactional requests: transactions are not supported yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.node.api import RequestContext

if TYPE_CHECKING:
    from milena.runtime.limited_log import LimitedLog


class HasClientLog(Protocol):
    """A broker with a log for the errors of clients."""

    @property
    def client_log(self) -> LimitedLog: ...


def log_refusal(node: HasClientLog, ctx: RequestContext, transactional_id: str) -> None:
    """Log why a request is rejected: most clients do not show the reason."""
    node.client_log.warning(
        "transactions are not supported yet", transactional_id=transactional_id, client=ctx.client_host
    )
