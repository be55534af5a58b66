"""The image alone: its contents, its start without configuration, its shutdown, and its errors if it cannot start."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from signal import SIGTERM

import pytest

from milena import VERSION
from milena.up.ports import free
from tests.containers.engine import IMAGE, docker, given, needs, started
from tests.wire.command import milena

COMBINED = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
}
TIER = {
    "KAFKA_REMOTE_LOG_STORAGE_SYSTEM_ENABLE": "true",
    "KAFKA_REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME": ("org.apache.kafka.server.log.remote.storage.LocalTieredStorage"),
    "KAFKA_RSM_CONFIG_DIR": "/mnt/tier",
}
CLUSTERS = ("4L6g3nShT-eMCtK--X86sw", "5L6g3nShT-eMCtK--X86sw")
BASE = "milena-base"
"""The base of an image of .ci/containers.py."""
SERVES = "Transitioning from RECOVERY to RUNNING"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def network() -> Iterator[str]:
    name = f"milena-{uuid.uuid4().hex[:12]}"
    docker("network", "create", name)
    yield name
    docker("network", "rm", name)


@pytest.fixture
def volume() -> Iterator[str]:
    name = docker("volume", "create", f"milena-{uuid.uuid4().hex[:12]}")
    yield name
    docker("volume", "rm", name)


def test_without_configuration_it_is_one_node_for_clients_on_this_machine() -> None:
    port = free("127.0.0.1", 1)[0]
    advertised = f"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{port}"
    with started("-p", f"127.0.0.1:{port}:9092") as alone:
        alone.wait_healthy()
        on_standard_output = docker("logs", alone.id)
        assert SERVES in on_standard_output and "Kafka Server started" in on_standard_output
        assert "localhost:9092" in alone.run("milena", "broker", "list", "-b", "localhost:9092")
        assert "the configuration is /etc/kafka/docker/server.properties, the default configuration\n" in alone.log
    with started("-p", f"127.0.0.1:{port}:9092", "--env", advertised) as reached:
        reached.wait_logged(SERVES)
        milena("produce", "-b", f"localhost:{port}", "t", stdin="hello\n")
        found = milena("consume", "-b", f"localhost:{port}", "t", "--from-beginning", "--exit").out
        assert "hello" in found


def test_it_runs_as_the_user_of_kafkas_image_and_has_no_build_tools() -> None:
    with started() as node:
        assert node.run("id", "-u") == "1000"
        script = "for tool in gcc cc make pip pip3; do command -v $tool; done; ls /opt/milena/bin; true"
        found = node.run("sh", "-c", script).split()
        assert "milena" in found
        assert not {"gcc", "cc", "make", "/opt/milena/bin/pip", "pip"} & set(found)
        assert (
            node.run("sh", "-c", "stat -c %u /var/lib/kafka/data /mnt/shared/config /etc/kafka/docker").split()
            == ["1000"] * 3
        )


def test_it_is_at_most_40_mb_larger_than_its_base() -> None:
    needs(BASE)
    image, base = (int(docker("image", "inspect", "--format", "{{.Size}}", name)) for name in (IMAGE, BASE))
    assert base < image < base + 40_000_000


def test_its_labels_say_what_it_is() -> None:
    labels = json.loads(docker("image", "inspect", "--format", "{{json .Config.Labels}}", IMAGE))
    assert labels["org.opencontainers.image.title"] == "Milena"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"] == VERSION


@pytest.mark.skipif(shutil.which("cc") is None, reason="without a C compiler the image has the pure form")
def test_it_runs_the_compiled_form() -> None:
    """An image of .ci/containers.py has the pure form if this machine's Python is not that of the base image."""
    with started() as node:
        version = node.run("python", "-c", "import sys; print(*sys.version_info[:2])")
        if version != "{} {}".format(*sys.version_info[:2]):
            pytest.skip(f"the image has Python {version}")
        assert node.run("milena", "--version").endswith("(compiled)")
        node.wait_logged('"form": "compiled"')


def test_sigterm_is_a_controlled_shutdown_and_the_next_start_is_clean(volume: str) -> None:
    where = ("--volume", f"{volume}:/var/lib/kafka/data", *given(COMBINED))
    with started(*where) as first:
        first.wait_logged(SERVES)
        docker("stop", "--time", "60", first.id)
        assert first.ended() == 0
        assert "SIGTERM" in first.log
    with started(*where) as second:
        second.wait_logged(SERVES)
        assert '"unclean": []' in second.log


def test_sigterm_stops_a_container_also_right_after_its_start() -> None:
    """The kernel discards a signal without a handler to the first process of a container: the command blocks or handles
    SIGTERM from its start on. (A SIGTERM during the start of the shell is lost. No image can prevent that.)"""
    for _ in range(5):
        with started(*given(COMBINED)) as node:
            status = node.command_begun()
            assert (int(status["SigBlk"], 16) | int(status["SigCgt"], 16)) & 1 << SIGTERM - 1, status
            docker("kill", "--signal", "TERM", node.id)
            assert node.ended() in (0, 128 + 15)


TWO_LISTENERS = COMBINED | {
    "KAFKA_LISTENERS": "INSIDE://:9092,OUTSIDE://:19092,CONTROLLER://:9093",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
    "MILENA_OWN_ADDRESS_LIMIT": "2",
}


WRONG_ADDRESSES = {"nowhere.invalid:9092": "Name or service not known", "localhost:9999": "Connect call failed"}
"""An address that no broker reaches, and why."""


def test_a_broker_that_cannot_reach_its_own_advertised_address_exits_with_a_one_line_error(network: str) -> None:
    controller = COMBINED | {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_LISTENERS": "CONTROLLER://:9093"}
    del controller["KAFKA_ADVERTISED_LISTENERS"]
    roles = {"KAFKA_PROCESS_ROLES": "broker", "KAFKA_NODE_ID": "2"}
    listening = {"KAFKA_LISTENERS": TWO_LISTENERS["KAFKA_LISTENERS"].removesuffix(",CONTROLLER://:9093")}
    voter = {"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@controller:9093"}
    with started("--network", network, "--network-alias", "controller", *given(controller | voter)):
        for where, why in WRONG_ADDRESSES.items():
            advertised = {"KAFKA_ADVERTISED_LISTENERS": f"INSIDE://{where},OUTSIDE://localhost:19092"}
            settings = TWO_LISTENERS | roles | listening | voter | advertised
            with started("--network", network, *given(settings)) as node:
                assert node.ended() == 1
                assert_unreached(node.log, where, why)


def test_a_combined_node_that_cannot_reach_its_own_advertised_address_prints_a_warning_and_serves() -> None:
    for where, why in WRONG_ADDRESSES.items():
        advertised = f"INSIDE://{where},OUTSIDE://localhost:19092"
        with started(*given({**TWO_LISTENERS, "KAFKA_ADVERTISED_LISTENERS": advertised})) as node:
            node.wait_logged("cannot be reached from this broker")
            assert_unreached(node.log, where, why)
            node.run("milena", "topic", "create", "t", "--replicas", "1", "-b", "localhost:19092")
            docker("stop", "--time", "60", node.id)
            assert node.ended() == 0


def assert_unreached(log: str, where: str, why: str) -> None:
    (line,) = (line for line in log.splitlines() if "cannot be reached from this broker" in line)
    assert line.startswith("milena: advertised.listeners: the advertised inter-broker address INSIDE://")
    assert where in line and why in line


def test_an_advertised_address_that_only_clients_outside_reach_is_accepted() -> None:
    outside = "INSIDE://localhost:9092,OUTSIDE://nowhere.invalid:19092"
    alone = COMBINED | {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://nowhere.invalid:9092"}
    for settings in ({**TWO_LISTENERS, "KAFKA_ADVERTISED_LISTENERS": outside}, alone):
        with started(*given(settings | {"MILENA_OWN_ADDRESS_LIMIT": "0.1"})) as node:
            node.wait_healthy()
            docker("stop", "--time", "60", node.id)
            assert node.ended() == 0


def test_arguments_and_variables_override_a_mounted_file() -> None:
    words = [f"{name}={value}" for name, value in COMBINED.items()]
    with started(command=["/etc/kafka/docker/run", *words, "KAFKA_NODE_ID=5"]) as node:
        node.wait_logged("ready node=5")
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        file = Path(name, "server.properties")
        text = "".join(
            f"{key.removeprefix('KAFKA_').lower().replace('_', '.')}={value}\n" for key, value in COMBINED.items()
        )
        file.write_text(text + "controller.quorum.voters=6@localhost:9093\n")
        with started("--volume", f"{name}:/mnt/shared/config", "--env", "KAFKA_NODE_ID=6") as node:
            node.wait_logged("ready node=6")


def test_testcontainers_script_starts_it() -> None:
    """Testcontainers' Kafka class replaces the command, copies a script into the container, which runs
    /etc/kafka/docker/run, and waits for a line of the log. The controller listens on 0.0.0.0; its advertised address is
    that of the quorum voter."""
    waiting = "while [ ! -f /tmp/start.sh ]; do sleep 0.1; done; /tmp/start.sh"
    variables = {
        **COMBINED,
        "KAFKA_LISTENERS": ",".join(
            f"{name}://0.0.0.0:{port}" for name, port in (("PLAINTEXT", 9092), ("BROKER", 9093), ("CONTROLLER", 9094))
        ),
    } | {
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "CLUSTER_ID": CLUSTERS[0],
    }
    del variables["KAFKA_ADVERTISED_LISTENERS"]
    with started(*given(variables), command=["sh", "-c", waiting]) as node, tempfile.TemporaryDirectory() as name:
        script = Path(name, "start.sh")
        advertised = "PLAINTEXT://localhost:32768,BROKER://$(hostname):9093"
        script.write_text(f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={advertised}\n/etc/kafka/docker/run \n")
        script.chmod(0o777)
        docker("cp", str(script), f"{node.id}:/tmp/start.sh")
        node.wait_logged(SERVES)
        node.wait_healthy()


def test_bad_input_ends_with_a_one_line_error_and_an_exit_code() -> None:
    for options, code, said in (
        (
            given({**COMBINED, "KAFKA_LOG_DIRS": "/data"}),
            1,
            "log.dirs: /data does not exist, and user 1000 of this process",
        ),
        (["--tmpfs", "/var/lib/kafka/data:ro"], 1, "log.dirs: /var/lib/kafka/data is mounted read-only"),
        (["--tmpfs", "/var/lib/kafka/data:mode=700"], 1, "belongs to user 0; user 1000 of this process may not write"),
        (given({**COMBINED, **TIER}), 1, "rsm.config.dir: /mnt/tier does not exist, and user 1000 of this process"),
        (given({**COMBINED, "MILENA_METRICS_PORT": "9092"}), 1, "cannot listen on :9092: address already in use"),
        (
            given({"KAFKA_LOG_DRIS": "/data", "KAFKA_NUM_PARTITIONS": "x"}),
            1,
            "environment variable KAFKA_LOG_DRIS: unknown configuration key",
        ),
        (given({**COMBINED, "KAFKA_LOG4J_ROOT_LOGLEVEL": "loud"}), 1, "KAFKA_LOG4J_ROOT_LOGLEVEL: 'loud' is not"),
        (given({**COMBINED, "MILENA_METRICS_PORT": "no"}), 1, "MILENA_METRICS_PORT: 'no' is not a port number"),
        (
            given({**COMBINED, "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9,2@b:9"}),
            1,
            "quorums of several voters are not",
        ),
    ):
        with started(*options) as node:
            assert node.ended() == code, node.log
            last = node.log.strip().splitlines()[-1]
            assert last.startswith("milena: ") and said in last, node.log
            assert "Traceback" not in node.log


def test_a_volume_of_another_cluster_or_node_is_refused(volume: str) -> None:
    where = ("--volume", f"{volume}:/var/lib/kafka/data")
    with started(*where, *given({**COMBINED, "CLUSTER_ID": CLUSTERS[0]})) as owner:
        owner.wait_logged(SERVES)
    with started(*where, *given({**COMBINED, "CLUSTER_ID": CLUSTERS[1]})) as other:
        assert other.ended() == 1
        assert f"/var/lib/kafka/data belongs to cluster {CLUSTERS[0]}, not {CLUSTERS[1]}" in other.log
    with started(*where, *given({**COMBINED, "KAFKA_NODE_ID": "2"})) as other:
        assert other.ended() == 1
        assert "/var/lib/kafka/data belongs to node 1, not 2" in other.log
