"""Where a cluster can be, opened by name, and the client libraries that work on it there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from milena.command_line.errors import UserError
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.own_clients import OwnClients
from milena.lab.chaos.place import Place
from milena.lab.chaos.topics import CLUSTER, COMPACTED_TIER, TOPICS
from milena.testing.chaos_processes import ProcessesPlace
from tests.chaos.clients.aio import AiokafkaClients
from tests.chaos.clients.confluent import ConfluentClients
from tests.chaos.clients.contained import Contained
from tests.chaos.clients.java_clients import JavaClients
from tests.chaos.clients.kafka_python import KafkaPythonClients
from tests.chaos.containers import ContainersPlace
from tests.chaos.kafka import KafkaPlace
from tests.oracle.kafka import NoKafka, jars


class OpenedPlace(Place, Protocol):
    """A place that takes any libraries."""

    def use(self, libraries: Sequence[Clients]) -> None: ...


async def _processes(folder: Path, port: int) -> OpenedPlace:
    return await ProcessesPlace.open(folder, port=port)


async def _containers(folder: Path, port: int) -> OpenedPlace:
    return await ContainersPlace.open(folder, {**CLUSTER, **COMPACTED_TIER}, TOPICS)


async def _kafka(folder: Path, port: int) -> OpenedPlace:
    return await KafkaPlace.open(folder, CLUSTER)


PLACES: Final[Mapping[str, Callable[[Path, int], Awaitable[OpenedPlace]]]] = {
    "processes": _processes,
    "containers": _containers,
    "kafka": _kafka,
}
"""How a cluster is opened in a folder, if possible with its first broker at a port. Raises UserError where it cannot
be."""
LIBRARIES: Final[Mapping[str, Callable[[str], Clients]]] = {
    one.name: one for one in (ConfluentClients, KafkaPythonClients, AiokafkaClients, JavaClients)
}
"""By name; they are given the bootstrap servers. Milena's own is there in addition."""


def libraries(names: Sequence[str], place: Place) -> list[Clients]:
    """Those with these names. Raises UserError for one that is not there."""
    bootstrap = ",".join(f"{host}:{port}" for host, port in place.bootstrap)
    found: list[Clients] = []
    for name in names:
        if name == OwnClients.name:
            found.append(OwnClients(place.runtime, place.bootstrap))
        elif name in LIBRARIES:
            try:
                found.append(Contained(LIBRARIES[name](bootstrap)))
            except NoKafka as reason:
                raise UserError(f"{name}: {reason}") from None
        else:
            raise UserError(f"{name!r} is none of {', '.join((OwnClients.name, *LIBRARIES))}")
    return found


def available() -> list[str]:
    """The names of all libraries that work on this machine."""
    found = [OwnClients.name, *LIBRARIES]
    try:
        jars()
    except NoKafka:
        found.remove(JavaClients.name)
    return found
