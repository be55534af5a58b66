"""Where the state of a cluster comes from: the lab commands of its nodes, or Kafka's protocol alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from milena.client.cluster import Cluster
from milena.console.model import Model


class Session(Protocol):
    """A connection over which a node is asked again and again."""

    async def round(self) -> None:
        """Ask once, and enter the answer into the model. Raises NodeAway, CommandError."""


class Watched(Protocol):
    """One source of state, mostly a node."""

    @property
    def name(self) -> str: ...

    def is_answering(self) -> bool:
        """Whether it makes sense to ask it: its process runs."""

    def session(self, model: Model) -> AbstractAsyncContextManager[Session]:
        """Yield a session. Raises NodeAway."""


class Place(Protocol):
    """One cluster."""

    @property
    def client(self) -> Cluster: ...

    def nodes(self) -> Mapping[str, Watched]:
        """Return the nodes as they are listed now."""

    def describe(self, watched: Watched, model: Model) -> None:
        """Enter into the model what is known about a node without asking it."""

    async def read_groups(self, model: Model) -> None:
        """Enter the consumer groups into the model. Errors of the cluster are no errors of this call."""
