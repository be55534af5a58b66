"""Testcontainers: Milena's class for Python."""

from __future__ import annotations

import pytest
from testcontainers.core.network import Network

from milena.testing.containers import MilenaContainer
from tests.containers.engine import IMAGE, KCAT, docker, needs
from tests.containers.work import written_and_read
from tests.wire.command import milena

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("without_reaper")]


def test_a_client_writes_and_reads_records_in_the_container() -> None:
    with MilenaContainer(IMAGE, settings={"num.partitions": "3"}) as kafka:
        assert sorted(written_and_read(kafka.get_bootstrap_server())) == [str(number).encode() for number in range(10)]
        described = milena("topic", "list", "-b", kafka.get_bootstrap_server()).out
        assert " 3 " in next(line for line in described.splitlines() if line.startswith("t-"))


def test_a_container_in_the_same_network_reaches_it() -> None:
    needs(KCAT)
    with Network() as network, MilenaContainer(IMAGE).with_network(network) as kafka:
        where = kafka.get_network_bootstrap_server()
        found = docker("run", "--rm", "--network", network.name, KCAT, "kcat", "-b", where, "-L")
        assert f"broker 1 at {where}" in found


def test_a_refused_setting_raises_an_error_with_its_message_at_once() -> None:
    with (
        pytest.raises(RuntimeError, match=r"num\.partitions"),
        MilenaContainer(IMAGE, settings={"num.partitions": "x"}),
    ):
        pass
