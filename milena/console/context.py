"""What the handlers of requests share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, HTTPException, Request

from milena.client.cluster import Cluster
from milena.console.access import Access
from milena.console.model import Model
from milena.console.places import Place
from milena.console.watch import Watch
from milena.up.layout import ClusterDir


@dataclass(frozen=True, slots=True)
class Context:
    """One server."""

    access: Access
    cookie: str
    """The name of the cookie of signed-in browsers."""
    model: Model
    watch: Watch
    place: Place
    directory: ClusterDir | None
    """The directory of a `milena up`; None for other clusters, whose processes the server cannot control."""
    page: bool
    """Whether the console's page is served."""

    @property
    def client(self) -> Cluster:
        return self.place.client


def context_of(request: Request) -> Context:
    """The context, as a dependency of handlers."""
    context: Context = request.app.state.context
    return context


Shared = Annotated[Context, Depends(context_of)]
"""The parameter of a handler that gets the context."""


def not_found(message: str) -> HTTPException:
    """Return the error for a name that does not exist; ``message`` says which ones do."""
    return HTTPException(404, message)
