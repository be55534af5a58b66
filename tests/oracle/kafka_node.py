"""One combined Kafka 4.4.0 node, controller and broker in one process."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.oracle import kafka

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
START_TIMEOUT = 120.0


@dataclass(frozen=True)
class KafkaNode:
    """The node's addresses and folders."""

    broker: tuple[str, int]
    controller: tuple[str, int]
    log_dir: Path
    node_id: int = 1


@contextlib.contextmanager
def running_kafka(
    folder: Path,
    *,
    features: Mapping[str, int] | None = None,
    static_voter: bool = False,
    options: Sequence[str] = (),
    **overrides: object,
) -> Iterator[KafkaNode]:
    """A formatted and started node. ``features``: levels that differ from Kafka's defaults; ``options``: for the JVM;
    config keys have ``_`` for ``.``."""
    broker, controller = ("127.0.0.1", _free_port()), ("127.0.0.1", _free_port())
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": "{}:{}".format(*controller),
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://{}:{},CONTROLLER://{}:{}".format(*broker, *controller),
        "log.dirs": folder / "data",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 3,
        "group.initial.rebalance.delay.ms": 0,
    }
    standalone = ["--standalone"]
    if static_voter:
        del settings["controller.quorum.bootstrap.servers"]
        settings["controller.quorum.voters"] = "1@{}:{}".format(*controller)
        standalone = []
    settings |= {name.replace("_", "."): value for name, value in overrides.items()}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "kafka.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    levels = [word for name, level in (features or {}).items() for word in ("--feature", f"{name}={level}")]
    kafka.tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file), *standalone, *levels)
    with started_kafka(file, broker, options):
        yield KafkaNode(broker, controller, folder / "data")


@contextlib.contextmanager
def started_kafka(file: Path, broker: tuple[str, int], options: Sequence[str] = ()) -> Iterator[None]:
    """A node of a formatted directory, started with a properties file. It is killed at the end."""
    log = file.with_name("kafka.out")
    with log.open("a") as out:
        command = kafka.java("kafka.Kafka", str(file), heap="512m", options=(*kafka.QUICK, *options))
        process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            wait_until_listening(process, broker, log)
            yield
        finally:
            process.kill()
            process.wait()


def wait_until_listening(process: subprocess.Popen[bytes], address: tuple[str, int], log: Path) -> None:
    """Wait until a node accepts connections. Fails with the node's output if it ends before."""
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            socket.create_connection(address, timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, f"Kafka ended:\n{log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"Kafka does not listen on {address}:\n{log.read_text()[-2000:]}"
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
