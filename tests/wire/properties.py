"""Configurations of single nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from milena.up.ports import free


def combined(folder: Path, **changes: object) -> dict[str, object]:
    """Return the configuration of a combined node on free ports. ``changes`` have ``_`` for ``.``."""
    broker, controller = free("127.0.0.1", 2)
    return {
        "node.id": 1,
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": folder / "data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        **{key.replace("_", "."): value for key, value in changes.items()},
    }


def write(folder: Path, values: Mapping[str, object]) -> str:
    """Write ``server.properties`` and return its path."""
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return str(file)


def variables(values: Mapping[str, object]) -> dict[str, str]:
    """Return the configuration as environment variables of Kafka's image."""
    spelled = {key.replace("_", "__").replace("-", "___").replace(".", "_").upper(): values[key] for key in values}
    return {f"KAFKA_{name}": str(value) for name, value in spelled.items()}
