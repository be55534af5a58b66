"""Configuration files of the measured systems: Kafka's clusters and a combined node. Milena's clusters write their
own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE, STDOUT

from milena.up.ports import free
from tests.oracle.kafka import java

KAFKA_HEAP = "1g"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


def write_combined(folder: Path, port: int, controller: int) -> Path:
    """One combined node."""
    file = folder / "node.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        f"log.dirs={folder}/data\noffsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
    )
    return file


def write_cluster(folder: Path, brokers: int, overrides: Mapping[str, str]) -> tuple[list[Path], list[int]]:
    """Properties of one controller and some brokers of Kafka, on new ports, with formatted directories; (files,
    brokers' ports). ``overrides`` are for all of them. Existing data is kept."""
    more = "".join(f"{key}={value}\n" for key, value in overrides.items())
    controller, *ports = free("127.0.0.1", brokers + 1)
    quorum = f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n"
    folder.mkdir(exist_ok=True)
    files = [folder / "controller.properties"]
    files[0].write_text(
        f"process.roles=controller\nnode.id=100\nlisteners=CONTROLLER://127.0.0.1:{controller}\n"
        f"log.dirs={folder}/controller\n{quorum}{more}"
    )
    for node_id, port in enumerate(ports, 1):
        files.append(folder / f"broker-{node_id}.properties")
        files[-1].write_text(
            f"process.roles=broker\nnode.id={node_id}\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
            f"log.dirs={folder}/broker-{node_id}\noffsets.topic.replication.factor={min(3, brokers)}\n"
            f"transaction.state.log.replication.factor={min(3, brokers)}\n"
            f"transaction.state.log.min.isr={max(1, min(3, brokers) - 1)}\n"
            f"group.initial.rebalance.delay.ms=0\n{quorum}{more}"
        )
    new = [file for file in files if not (folder / file.stem / "meta.properties").exists()]
    format_storage(*new, standalone="controller")
    return files, ports


def format_storage(*files: Path, standalone: str | None = None) -> None:
    """Format all directories. ``standalone``: the file of the only controller, if no voters are configured."""
    running = []
    for file in files:
        arguments = [
            "format",
            "-t",
            CLUSTER_ID,
            "-c",
            str(file),
            *(["--standalone"] if file.stem == standalone else []),
        ]
        running.append(subprocess.Popen(java("kafka.tools.StorageTool", *arguments), stdout=PIPE, stderr=STDOUT))
    for file, process in zip(files, running, strict=True):
        said, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{file} cannot be formatted: {said.decode()[-500:]}")
