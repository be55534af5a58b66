"""The client libraries of chaos execute the operations of its workload."""

from __future__ import annotations

import pytest

from milena.lab.chaos.clients import Clients
from milena.testing.chaos_clients.aio_transactions import AiokafkaTransactingClients
from milena.testing.chaos_clients.confluent_transactions import ConfluentTransactingClients
from milena.testing.chaos_clients.kafka_python_transactions import KafkaPythonTransactingClients
from milena.testing.chaos_clients.limits import Limits
from tests.chaos.clients.contract import ClientsContract
from tests.chaos.clients.transactions_contract import TransactionsContract

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class TestConfluent(ClientsContract, TransactionsContract):
    def library(self, bootstrap: str, limits: Limits) -> Clients:
        return ConfluentTransactingClients(bootstrap, limits)


class TestKafkaPython(ClientsContract, TransactionsContract):
    def library(self, bootstrap: str, limits: Limits) -> Clients:
        return KafkaPythonTransactingClients(bootstrap, limits)


class TestAiokafka(ClientsContract, TransactionsContract):
    def library(self, bootstrap: str, limits: Limits) -> Clients:
        return AiokafkaTransactingClients(bootstrap, limits)
