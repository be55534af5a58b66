"""What the handlers of requests share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, HTTPException, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

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


LONGEST_STRING: Final = (1 << 15) - 1
"""Bytes of a string in Kafka's protocol."""


class Strict(BaseModel):
    """A body without further fields."""

    model_config = ConfigDict(extra="forbid")


Int32 = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
Number = Annotated[int, Field(ge=0, lt=1 << 31)]
"""Of a partition or a broker."""
Position = Annotated[int, Field(ge=0, lt=1 << 63)]
"""An offset or a timestamp."""


def _fits(text: str) -> str:
    if len(text.encode()) > LONGEST_STRING:
        raise ValueError(f"longer than {LONGEST_STRING} bytes")
    return text


Text = Annotated[str, AfterValidator(_fits)]
"""A string of Kafka's protocol."""


async def check_text(request: Request) -> None:
    """Raise HTTPException 400 for a body with characters that neither Kafka's protocol nor an answer can have."""
    try:
        text = (await request.body()).decode()
        if "\\u" in text:
            json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeError:
        raise HTTPException(400, "the body must be JSON in UTF-8, without lone surrogates") from None
    except (ValueError, RecursionError):  # not JSON: what reads the body says so
        return


def not_found(message: str) -> HTTPException:
    """Return the error for a name that does not exist; ``message`` says which ones do."""
    return HTTPException(404, message)
