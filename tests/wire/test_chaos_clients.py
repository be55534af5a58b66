"""The client libraries of chaos do what its workload asks of them."""

from __future__ import annotations

from milena.lab.chaos.clients import Clients
from tests.chaos.clients.aio import AiokafkaClients
from tests.chaos.clients.confluent import ConfluentClients
from tests.chaos.clients.contract import ClientsContract
from tests.chaos.clients.kafka_python import KafkaPythonClients
from tests.chaos.clients.limits import Limits


class TestConfluent(ClientsContract):
    def library(self, bootstrap: str, limits: Limits) -> Clients:
        return ConfluentClients(bootstrap, limits)


class TestKafkaPython(ClientsContract):
    def library(self, bootstrap: str, limits: Limits) -> Clients:
        return KafkaPythonClients(bootstrap, limits)


class TestAiokafka(ClientsContract):
    def library(self, bootstrap: str, limits: Limits) -> Clients:
        return AiokafkaClients(bootstrap, limits)
