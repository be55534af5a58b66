"""BrokerRegistration to Kafka 4.4.0's controller and to Milena's: accepted, refused, and fatal to Kafka's controller.

The invalid ones are last: Kafka's controller resigns after three of them, and ends after the fourth.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.features import REMOTE_COMPACTION
from milena.protocol.requests import messages
from milena.testing.local_cluster import LocalCluster
from tests.oracle.differential.conftest import FEATURES
from tests.oracle.differential.sides import CLOSED, Line, Side
from tests.oracle.kafka_cluster import CONTROLLER, running_kafka_cluster
from tests.oracle.kafka_node import CLUSTER_ID

LEVELS: Final = [
    {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 50},
    {"name": "kraft.version", "min_supported_version": 0, "max_supported_version": 1},
    {"name": "transaction.version", "min_supported_version": 0, "max_supported_version": 2},
]
PATIENCE: Final = 30.0


def listener(name: str = "PLAINTEXT", host: str = "h", port: int = 1, protocol: int = 0) -> dict[str, Any]:
    return {"name": name, "host": host, "port": port, "security_protocol": protocol}


TAKEN_BY_BOTH: Final[dict[str, dict[str, Any]]] = {
    "the last port": {"listeners": [listener(port=65_535)]},
    "the controller's own id": {"broker_id": CONTROLLER},
    "the largest id": {"broker_id": 2**31 - 1},
    "no listeners": {"listeners": []},
    "another protocol": {"listeners": [listener(protocol=3)]},
    "a name twice": {"listeners": [listener(), listener(host="other")]},
    "an address twice": {"listeners": [listener(), listener("X")]},
    "a name that no listener has": {"listeners": [listener("a b")]},
    "a name beyond ASCII": {"listeners": [listener(host="b\u00fccher")]},
    "an IPv6 address": {"listeners": [listener(host="::1")]},
    "an empty rack": {"rack": ""},
    "a feature of Milena's own": {
        "features": [*LEVELS, {"name": REMOTE_COMPACTION, "min_supported_version": 0, "max_supported_version": 1}]
    },
}
TAKEN_BY_KAFKA: Final[dict[str, dict[str, Any]]] = {
    "a negative id": {"broker_id": -5},
    **{f"host {host[:8]!a}": {"listeners": [listener(host=host)]} for host in ("a..b", "h" * 64, "x" * 30_000, "a\0b")},
}
FATAL_IN_KAFKA: Final[dict[str, dict[str, Any]]] = {
    "port 0": {"listeners": [listener(port=0)]},
    "an empty host": {"listeners": [listener(host="")]},
    "an unknown protocol": {"listeners": [listener(protocol=4)]},
    "a listener without a name": {"listeners": [listener("")]},
}


class Registrar:
    """Registers brokers, each with a different id, with one controller."""

    def __init__(self, side: Side) -> None:
        self._line = Line(side)
        self._next = 200

    def close(self) -> None:
        self._line.close()

    def register(self, **fields: Any) -> str:
        """Wait until the controller is active and register a broker. Return the name of the error, or how the
        connection ended."""
        self._next += 1
        request = {
            "broker_id": self._next,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": uuid4(),
            "listeners": [listener()],
            "features": LEVELS,
            "log_dirs": [uuid4()],
        }
        body = messages.encode_request(ApiKey.BROKER_REGISTRATION, 4, **request | fields)
        deadline = time.monotonic() + PATIENCE
        while True:
            self._line.send(ApiKey.BROKER_REGISTRATION, 4, body)
            answer = self._line.receive(ApiKey.BROKER_REGISTRATION, 4)
            if answer == CLOSED:
                return CLOSED
            code = ErrorCode(answer["error_code"])
            if code is not ErrorCode.NOT_CONTROLLER or time.monotonic() > deadline:
                return code.name
            time.sleep(0.1)


@pytest.fixture(scope="module")
def registrars(kafka_answers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registrar, Registrar]]:
    folder: Path = tmp_path_factory.mktemp("registrations")
    options = ["--cluster-id", CLUSTER_ID, "--no-tier"]
    with (
        LocalCluster.start(folder / "milena", options=options) as cluster,
        running_kafka_cluster(folder / "kafka", features=FEATURES, overrides={}, brokers=0) as kafka,
    ):
        host, _, port = cluster.controller.listeners["CONTROLLER"].rpartition(":")
        found = Side("Kafka", *kafka.controller, CONTROLLER), Side("Milena", host, int(port), cluster.controller.id)
        _until_listening(found[0])
        both = Registrar(found[0]), Registrar(found[1])
        yield both
        for one in both:
            one.close()


def _until_listening(side: Side) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection((side.host, side.port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"{side.title} does not listen"
            time.sleep(0.1)


def test_registrations_as_kafkas_controller_answers_them(registrars: tuple[Registrar, Registrar]) -> None:
    kafka, milena = registrars
    for what, fields in TAKEN_BY_BOTH.items():
        assert (kafka.register(**fields), milena.register(**fields)) == ("NONE", "NONE"), what
    for what, fields in TAKEN_BY_KAFKA.items():
        assert (kafka.register(**fields), milena.register(**fields)) == ("NONE", "INVALID_REGISTRATION"), what
    for what, fields in FATAL_IN_KAFKA.items():
        said = kafka.register(**fields), milena.register(**fields)
        assert said in (("UNKNOWN_SERVER_ERROR", "INVALID_REGISTRATION"), (CLOSED, "INVALID_REGISTRATION")), what
    assert milena.register() == "NONE"
