"""`docker compose up` with the repository's file: clients inside and outside, a leader killed, a broker cut off."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import kafka
import pytest

from tests.containers.engine import IMAGE, KCAT, Project, docker, given, needs, started
from tests.containers.work import INSIDE, bootstrap, create, leader, read, write
from tests.wire.command import milena
from tests.wire.waiting import wait_until

READING = """
import kafka, sys
settings = {"group_id": "readers", "auto_offset_reset": "earliest", "consumer_timeout_ms": 60000}
consumer = kafka.KafkaConsumer("python", bootstrap_servers=sys.argv[1].split(","), **settings)
for _, record in zip(range(50), consumer):
    print(record.value.decode())
"""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(project: Callable[..., Project]) -> Iterator[Project]:
    with project("first").running() as running:
        yield running


def test_clients_write_and_read_on_the_host_and_in_the_network(cluster: Project) -> None:
    create(cluster, "orders")
    write(cluster, "orders", 10)
    found = cluster.container("broker-2").run("milena", "consume", "orders", "-b", INSIDE, "--from-beginning", "--exit")
    assert len(found.splitlines()) == 10


def test_kcat_in_the_network_sees_brokers_by_the_names_of_their_services(cluster: Project) -> None:
    needs(KCAT)
    listed = cluster.client("-b", "broker-1:9092", "-L")
    assert all(f"broker {number} at broker-{number}:9092" in listed for number in (1, 2, 3))


def test_kafka_python_writes_on_the_host_and_reads_in_the_network(cluster: Project) -> None:
    create(cluster, "python")
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap(cluster).split(","), acks="all")
    for number in range(50):
        producer.send("python", str(number).encode()).get(60)
    producer.close()
    library = str(Path(kafka.__file__).parent)
    mounted = ("--volume", f"{library}:/opt/client/kafka:ro", "--env", "PYTHONPATH=/opt/client")
    network = ("--network", f"{cluster.name}_default")
    found = docker("run", "--rm", *network, *mounted, IMAGE, "python", "-c", READING, INSIDE)
    assert sorted(found.split(), key=int) == [str(number) for number in range(50)]


def test_clients_continue_to_write_and_read_after_a_leader_is_killed(cluster: Project) -> None:
    create(cluster, "kept")
    write(cluster, "kept", 100)
    killed = cluster.container(f"broker-{leader(cluster, 'kept')}")
    docker("kill", killed.id)
    write(cluster, "kept", 100)
    assert sorted(read(cluster, "kept")) == sorted(2 * [str(number) for number in range(100)])
    docker("start", killed.id)
    killed.wait_healthy()


def test_a_broker_that_is_cut_off_is_healthy_but_not_ready_until_it_is_connected_again(cluster: Project) -> None:
    alone, network = cluster.container("broker-3"), f"{cluster.name}_default"
    docker("network", "disconnect", network, alone.id)
    wait_until(lambda: not alone.ready, "broker-3 is still ready", 60)
    alone.wait_checked()
    assert alone.health == "healthy"
    docker("network", "connect", "--alias", "broker-3", network, alone.id)
    wait_until(lambda: alone.ready, "broker-3 is not ready", 60)


def test_brokers_are_healthy_and_serve_while_the_controller_is_down(cluster: Project) -> None:
    create(cluster, "without-controller")
    write(cluster, "without-controller", 10)
    controller, broker = cluster.container("controller"), cluster.container("broker-1")
    docker("kill", controller.id)
    try:
        wait_until(lambda: not broker.ready, "broker-1 is still ready", 60)
        assert len(read(cluster, "without-controller")) == 10
        broker.wait_checked()
        assert broker.health == "healthy"
    finally:
        docker("start", controller.id)
    wait_until(lambda: broker.ready, "broker-1 is not ready", 60)


def test_segments_are_copied_to_the_tier_that_all_brokers_share(cluster: Project) -> None:
    settings = ("remote.storage.enable=true", "segment.bytes=1048576", "local.retention.bytes=1")
    configs = [word for setting in settings for word in ("--config", setting)]
    milena("topic", "create", "old", "--partitions", "1", "--replicas", "3", *configs, "-b", bootstrap(cluster))
    write(cluster, "old", 3000, width=1000)
    first = cluster.container("broker-1")
    listing = ("sh", "-c", "find /var/lib/kafka/tier -name '*.log' | wc -l")
    wait_until(lambda: first.run(*listing) != "0", "nothing is in the tier", 120)
    assert cluster.container("broker-2").run(*listing) != "0"
    assert len(read(cluster, "old")) == 3000


def test_a_second_cluster_runs_beside_the_first(cluster: Project, project: Callable[..., Project]) -> None:
    create(cluster, "of-the-first")
    with project("second").running() as second:
        create(second, "of-the-second")
        assert "of-the-first" not in milena("topic", "list", "-b", bootstrap(second)).out
    assert "of-the-second" not in milena("topic", "list", "-b", bootstrap(cluster)).out


def test_a_second_broker_with_the_same_id_exits_with_a_one_line_error(cluster: Project) -> None:
    settings = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1000@controller:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_INITIAL_BROKER_REGISTRATION_TIMEOUT_MS": "3000",
    }
    with started("--network", f"{cluster.name}_default", *given(settings)) as second:
        assert second.ended() == 1
        assert "another broker runs with node.id=1" in second.log


def test_down_leaves_no_anonymous_volumes_and_no_capabilities_are_needed(cluster: Project) -> None:
    for service in ("controller", "broker-1"):
        inspected = json.loads(docker("inspect", cluster.container(service).id))[0]
        named = [mount["Name"] for mount in inspected["Mounts"] if mount["Type"] == "volume"]
        assert named and all(name.startswith(cluster.name) for name in named)
        assert inspected["HostConfig"]["CapDrop"] == ["ALL"]
        assert inspected["HostConfig"]["SecurityOpt"] == ["no-new-privileges:true"]
        assert inspected["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"


def test_compose_down_and_up_keep_the_data(cluster: Project) -> None:
    create(cluster, "stays")
    write(cluster, "stays", 50)
    cluster.compose("down")
    cluster.up()
    wait_until(lambda: len(read(cluster, "stays")) == 50, "the records are not all there")
