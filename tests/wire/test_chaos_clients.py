"""The client libraries of chaos execute the operations of its workload."""

from __future__ import annotations

import pytest

from milena.lab.chaos.clients import Clients
from milena.testing.chaos_clients.aio import AiokafkaClients
from milena.testing.chaos_clients.confluent import ConfluentClients
from milena.testing.chaos_clients.kafka_python import KafkaPythonClients
from milena.testing.chaos_clients.limits import Limits
from tests.chaos.clients.contract import ClientsContract

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class TestConfluent(ClientsContract):
    def library(self, bootstrap: str, limits: Limits) -> Clients:
        return ConfluentClients(bootstrap, limits)


class TestKafkaPython(ClientsContract):
    def library(self, bootstrap: str, limits: Limits) -> Clients:
        return KafkaPythonClients(bootstrap, limits)


class TestAiokafka(ClientsContract):
    def library(self, bootstrap: str, limits: Limits) -> Clients:
        return AiokafkaClients(bootstrap, limits)
