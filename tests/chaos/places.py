"""The places and client libraries of ``milena.testing.chaos``, with those that only the tests have."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from milena.command_line.errors import UserError
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.topics import CLUSTER, COMPACTED_TIER, TOPICS
from milena.testing import chaos
from milena.testing.chaos import OpenedPlace, Setting
from tests.chaos.clients.java_clients import JavaClients
from tests.chaos.containers import ContainersPlace
from tests.chaos.kafka import KafkaPlace
from tests.oracle.kafka import NoKafka, jars


async def _containers(folder: Path, port: int, tier: str) -> OpenedPlace:
    return await ContainersPlace.open(folder, {**CLUSTER, **COMPACTED_TIER}, TOPICS)


async def _kafka(folder: Path, port: int, tier: str) -> OpenedPlace:
    return await KafkaPlace.open(folder, CLUSTER)


class JavaLibrary:
    """Implements ``chaos.LibraryLike``. Needs a JVM and Kafka's jars."""

    def is_installed(self) -> bool:
        try:
            jars()
        except NoKafka:
            return False
        return True

    def make(self, bootstrap: str) -> Clients:
        try:
            return JavaClients(bootstrap)
        except NoKafka as reason:
            raise UserError(str(reason)) from None


SETTING: Final = Setting(
    ("python", "-m", "tests.chaos"),
    {**chaos.SETTING.places, "containers": _containers, "kafka": _kafka},
    {**chaos.SETTING.libraries, JavaClients.name: JavaLibrary()},
)
