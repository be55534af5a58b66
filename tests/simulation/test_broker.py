"""The life cycle of a broker in a simulated cluster: registration, shutdown, topics, configuration, failed disks."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from milena.broker.controller_link.lifecycle import BrokerState
from milena.broker.server import Broker
from milena.broker.waiting.purgatory import OffsetReached
from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.offsets import EARLIEST, find_offset
from milena.client.producer import Producer
from milena.lab.cluster import NodeEnded, SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request

T = TypeVar("T")


def on_a_cluster(
    scenario: Callable[[SimulatedCluster, Cluster], Awaitable[T]], *, brokers: int = 1, seed: int = 1, **options: object
) -> T:
    async def run(world: World) -> T:
        cluster = await start_cluster(world, brokers, of_brokers=options)
        async with cluster.client() as client:
            result = await scenario(cluster, client)
        cluster.check_alive()
        return result

    return simulate(run, seed=seed)


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until ``condition`` is true, at most so many virtual seconds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def create(client: Cluster, name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    results = await admin.create_topics(client, [admin.NewTopic(name, partitions, replicas, configs=dotted)])
    assert results == {name: None}


async def hosted(broker: Broker, topic: str, *indexes: int) -> None:
    """Wait until the broker hosts these partitions."""
    await until(lambda: all(broker.partitions.find(topic, index) is not None for index in indexes))


async def alter(client: Cluster, kind: int, name: str, **values: str) -> None:
    await admin.alter_configs(client, kind, name, {key.replace("_", "."): value for key, value in values.items()})


async def produce_once(client: Cluster, topic: str, index: int) -> int:
    """The error code of a single attempt at broker 1."""
    records = memoryview(build_batch([Record(0, 0, None, b"x")], base_timestamp=client.runtime.clock.time_ms()))
    request = ProduceRequest(None, 1, 1000, [(topic, None, [(index, records)])])
    body = encode_produce_request(9, request)
    channel = client.to(host_of(1), 9092)
    response = await channel.request_raw(ApiKey.PRODUCE, 9, [body], lambda data: decode_produce_response(9, data))
    return response.topics[0][2][0].error_code


def leaders(broker: Broker, topic: str) -> list[tuple[int, int, tuple[int, ...]]]:
    """(leader, leader epoch, ISR) of each partition in the image of the broker."""
    partitions = broker.image.topics[topic].partitions
    return [(one.leader, one.leader_epoch, one.isr) for _, one in sorted(partitions.items())]


class TestJoining:
    def test_a_broker_registers_its_listeners_and_directories_and_is_unfenced(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            broker = cluster.brokers[1]
            await until(lambda: not broker.image.brokers[1].fenced)
            registered = broker.image.brokers[1]
            assert registered.epoch == broker.lifecycle.epoch
            assert [(one.name, one.host, one.port) for one in registered.endpoints] == [("PLAINTEXT", "broker-1", 9092)]
            assert set(registered.log_dirs) == {one.directory_id for one in broker.logs.dirs}
            assert broker.lifecycle.state is BrokerState.RUNNING and broker.ready

        on_a_cluster(scenario, log_dirs="/a,/b")

    def test_a_broker_takes_the_cluster_id_of_its_controller_and_keeps_it(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            assert cluster.controller is not None
            cluster_id = cluster.controller.cluster_id
            assert cluster.brokers[1].cluster_id == cluster_id
            await cluster.stop_broker(1)
            assert (await cluster.start_broker(1)).cluster_id == cluster_id

        on_a_cluster(scenario)

    def test_a_broker_waits_for_a_controller_that_starts_later(self) -> None:
        async def run(world: World) -> None:
            cluster = SimulatedCluster(world, overrides={"offsets_topic_replication_factor": 1})
            starting = asyncio.ensure_future(cluster.start_broker(1))
            await asyncio.sleep(5)
            assert not starting.done()
            await cluster.start_controller()
            assert (await starting).ready
            cluster.check_alive()

        simulate(run, seed=1)

    @pytest.mark.parametrize(("fencing", "seconds"), [("true", (0, 1)), ("false", (5, 12))])
    def test_a_second_incarnation_registers_only_after_the_first_is_fenced(
        self, fencing: str, seconds: tuple[float, float]
    ) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> tuple[float, float]:
            clock = asyncio.get_running_loop().time
            epoch = cluster.brokers[1].lifecycle.epoch
            began = clock()
            await cluster.kill(host_of(1))
            broker = await cluster.start_broker(1)
            assert broker.lifecycle.epoch > epoch
            return began, clock()

        async def run(world: World) -> tuple[float, float]:
            cluster = await start_cluster(world, 1, {"broker_connection_loss_fencing_enable": fencing})
            async with cluster.client() as client:
                return await scenario(cluster, client)

        began, ended = simulate(run, seed=1)
        assert seconds[0] < ended - began < seconds[1]

    def test_a_directory_of_another_node_is_refused(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await cluster.stop_broker(1)
            cluster.broker_overrides = {"node_id": 7}
            with pytest.raises(NodeEnded, match="belongs to node 1, not 7"):
                await cluster.start_broker(1)
            cluster.world.machine(host_of(1)).failures.clear()

        on_a_cluster(scenario)


class TestLeaving:
    def test_a_controlled_shutdown_leaves_the_partition_without_leader_and_its_isr_as_it_was(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client, "t", 2)
            watcher = cluster.brokers[1]
            led = [index for index, (leader, _, _) in enumerate(leaders(watcher, "t")) if leader == 2]
            await cluster.stop_broker(2)
            await until(lambda: all(leaders(watcher, "t")[index][0] == -1 for index in led))
            assert [leaders(watcher, "t")[index][2] for index in led] == [(2,)] * len(led)
            await cluster.start_broker(2)
            await until(lambda: all(leaders(watcher, "t")[index][0] == 2 for index in led))
            assert all(leaders(watcher, "t")[index][1] == 2 for index in led), "each change of leader is an epoch"

        on_a_cluster(scenario, brokers=2)

    def test_a_clean_shutdown_hands_the_broker_epoch_to_the_next_start(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            epoch = cluster.brokers[1].lifecycle.epoch
            await cluster.stop_broker(1)
            broker = await cluster.start_broker(1)
            assert broker.logs.previous_broker_epoch == epoch
            await cluster.kill(host_of(1))
            assert (await cluster.start_broker(1)).logs.previous_broker_epoch is None

        on_a_cluster(scenario)

    def test_a_killed_broker_keeps_what_it_wrote(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client, "t")
            producer = Producer(client)
            for value in (b"a", b"b", b"c"):
                await producer.send("t", value)
            await cluster.kill(host_of(1))
            await cluster.start_broker(1)
            produced = await producer.send("t", b"d")
            assert produced.offset == 3
            await producer.close()

        on_a_cluster(scenario)


class TestTopics:
    def test_partitions_are_created_added_and_deleted(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            broker = cluster.brokers[1]
            await create(client, "t", 2)
            await hosted(broker, "t", 0, 1)
            await admin.create_partitions(client, {"t": 3})
            await hosted(broker, "t", 2)
            files = cluster.world.machine(host_of(1)).storage.files
            assert any(path.startswith("/data/t-2/") for path in files)
            await admin.delete_topics(client, ["t"])
            await until(lambda: broker.partitions.find("t", 0) is None)
            assert not any(path.startswith("/data/t-2/") for path in files)
            assert any(path.startswith("/data/t-2.") and "-delete/" in path for path in files)
            await asyncio.sleep(65)
            assert not any(path.startswith("/data/t-2.") for path in files)

        on_a_cluster(scenario)

    def test_retention_completes_operations_that_wait_for_the_partition(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client, "t", retention_ms="1000", segment_ms="1000")
            producer = Producer(client)
            await producer.send("t", b"a")
            broker = cluster.brokers[1]
            partition = broker.partitions.get("t", 0)
            heard: list[bool] = []
            waiting = OffsetReached(lambda: partition.online_log.log_start_offset == 1, heard.append)
            broker.purgatory.wait(waiting, (partition,), 3600)
            await until(lambda: heard, seconds=600)
            assert heard == [True]
            await producer.close()

        on_a_cluster(scenario)

    def test_a_topic_that_is_created_again_begins_at_offset_zero(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            for _ in range(2):
                await create(client, "t")
                producer = Producer(client)
                assert (await producer.send("t", b"a")).offset == 0
                await producer.close()
                await admin.delete_topics(client, ["t"])
                client.forget_topic("t")

        on_a_cluster(scenario)

    def test_a_log_whose_topic_was_deleted_meanwhile_is_set_aside(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client, "gone", 2)
            await create(client, "t", 2)
            await cluster.stop_broker(2)
            await admin.delete_topics(client, ["gone"])
            await cluster.start_broker(2)
            names = {path.split("/")[2] for path in cluster.world.machine(host_of(2)).storage.files if "/data/" in path}
            assert any(name.startswith("gone-") and name.endswith("-stray") for name in names)
            assert any(name in ("t-0", "t-1") for name in names)

        on_a_cluster(scenario, brokers=2)

    def test_many_partitions_are_hosted_in_slices(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client, "t", 100)
            await hosted(cluster.brokers[1], "t", *range(100))
            await until(lambda: all(partition.is_leader for partition in cluster.brokers[1].partitions))

        on_a_cluster(scenario)

    def test_a_requested_topic_is_created_unless_auto_creation_is_disabled(self) -> None:
        async def ask(cluster: SimulatedCluster, client: Cluster) -> int:
            view = await client.metadata(["new"], allow_auto_create=True)
            assert view.topics["new"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await asyncio.sleep(1)
            view = await client.metadata(["new"])
            return len(view.topics["new"].partitions)

        assert on_a_cluster(ask, num_partitions=4) >= 1
        assert on_a_cluster(ask, auto_create_topics_enable="false") == 0


class TestConfiguration:
    def test_a_topic_config_takes_effect_at_once(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client, "t", retention_ms="7")
            await hosted(cluster.brokers[1], "t", 0)
            log = cluster.brokers[1].partitions.get("t", 0).online_log
            assert log.config.retention_ms == 7
            await alter(client, TOPIC_RESOURCE, "t", max_message_bytes="100")
            await until(lambda: log.config.max_message_bytes == 100)
            producer = Producer(client)
            with pytest.raises(KafkaError) as error:
                await producer.send("t", b"x" * 200)
            assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE
            await producer.close()

        on_a_cluster(scenario)

    def test_dynamic_broker_configs_override_the_static_ones(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            await create(client, "t")
            broker = cluster.brokers[1]
            await hosted(broker, "t", 0)
            log = broker.partitions.get("t", 0).online_log
            await alter(client, BROKER_RESOURCE, "", log_retention_bytes="5000")
            await until(lambda: log.config.retention_bytes == 5000)
            await alter(client, BROKER_RESOURCE, "1", log_retention_bytes="6000")
            await until(lambda: log.config.retention_bytes == 6000)
            assert broker.config.get("log.retention.bytes") == 6000
            await cluster.stop_broker(1)
            broker = await cluster.start_broker(1)
            assert broker.partitions.get("t", 0).online_log.config.retention_bytes == 6000

        on_a_cluster(scenario)


class TestDirectories:
    def test_the_controller_learns_the_directory_of_a_replica(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            broker = cluster.brokers[1]
            await create(client, "t", 6)
            await hosted(broker, "t", *range(6))
            logs = broker.logs

            def controller_knows_directories() -> bool:
                return all(
                    image.directory_of(1) == logs.directory_id(broker.partitions.get("t", index).online_log)
                    for index, image in broker.image.topics["t"].partitions.items()
                )

            await until(controller_knows_directories)
            assert [len(directory.logs) for directory in logs.dirs] == [3, 3]

        on_a_cluster(scenario, log_dirs="/a,/b")

    def test_a_failed_disk_takes_only_its_own_partitions_offline(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            broker = cluster.brokers[1]
            await create(client, "t", 4)
            await hosted(broker, "t", *range(4))
            lost = [partition.index for partition in broker.partitions if "/b/" in partition.online_log.folder]
            kept = [index for index in range(4) if index not in lost]
            await until(lambda: all(image.directory_of(1) for image in broker.image.topics["t"].partitions.values()))
            cluster.world.machine(host_of(1)).storage.fail("/b/", errno.EIO)
            assert await produce_once(client, "t", lost[0]) == ErrorCode.KAFKA_STORAGE_ERROR
            assert [await produce_once(client, "t", index) for index in kept] == [0, 0]
            await until(lambda: all(leaders(broker, "t")[index][0] == -1 for index in lost))
            assert all(leaders(broker, "t")[index][0] == 1 for index in kept)
            described = await client.ask_any(ApiKey.DESCRIBE_LOG_DIRS, topics=None)
            assert {one.log_dir: int(one.error_code) for one in described.results} == {
                "/a": 0,
                "/b": ErrorCode.KAFKA_STORAGE_ERROR,
            }

        on_a_cluster(scenario, log_dirs="/a,/b")

    def test_a_broker_that_cannot_report_a_failed_disk_ends(self) -> None:
        async def run(world: World) -> None:
            options = {"log_dirs": "/a,/b", "log_dir_failure_timeout_ms": 5000}
            cluster = await start_cluster(world, 1, of_brokers=options)
            machine = world.machine(host_of(1))
            await cluster.kill("controller")
            machine.storage.fail("/b/", errno.EIO)
            await until(lambda: not machine.alive)
            assert "could not be reported" in machine.failures[0][0]
            machine.failures.clear()
            cluster.check_alive()

        simulate(run, seed=1)

    def test_a_broker_without_any_log_directory_ends(self) -> None:
        async def run(world: World) -> None:
            cluster = await start_cluster(world, 1, of_brokers={"log_dirs": "/a,/b"})
            machine = world.machine(host_of(1))
            machine.storage.fail("/a/", errno.EIO)
            machine.storage.fail("/b/", errno.EIO)
            await until(lambda: not machine.alive)
            assert "failed" in machine.failures[0][0]
            machine.failures.clear()
            cluster.check_alive()

        simulate(run, seed=1)


class TestForwarding:
    def test_an_admin_request_without_a_controller_times_out(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> Any:
            await cluster.kill("controller")
            results = await admin.create_topics(client, [admin.NewTopic("t", 1, 1)])
            await cluster.start_controller()
            return results

        error = on_a_cluster(scenario, request_timeout_ms=2000)["t"]
        assert error is not None and error.code is ErrorCode.REQUEST_TIMED_OUT

    def test_producer_ids_are_never_allocated_twice(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            given = []
            for broker in (1, 2, 1, 2):
                channel = client.to(host_of(broker), 9092)
                response = await channel.request(ApiKey.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=0)
                assert not response.error_code and response.producer_epoch == 0
                given.append(response.producer_id)
            assert len(set(given)) == 4
            await cluster.kill(host_of(1))
            await cluster.start_broker(1)
            response = await client.to(host_of(1), 9092).request(
                ApiKey.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=0
            )
            assert response.producer_id > max(given)

        on_a_cluster(scenario, brokers=2)


def test_a_log_start_offset_survives_a_restart() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, "t")
        producer = Producer(client)
        for _ in range(5):
            await producer.send("t", b"a")
        assert await admin.delete_records(client, {("t", 0): 3}) == {("t", 0): 3}
        await cluster.stop_broker(1)
        await cluster.start_broker(1)
        client.forget_topic("t")
        assert (await find_offset(client, "t", 0, EARLIEST)).offset == 3
        await producer.close()

    on_a_cluster(scenario)
