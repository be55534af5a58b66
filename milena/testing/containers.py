"""One node in a container for tests, with testcontainers (``milena-kafka[testcontainers]``).

    with MilenaContainer() as kafka:
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})

The image is that of ``docker build -t milena-kafka .`` (docs/containers.md).
"""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Mapping
from typing import Final

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from milena.config.broker_config import unknown_keys
from milena.config.sources import from_environment, plain, variable_of
from milena.config.values import ConfigError

SERVES: Final = "Transitioning from RECOVERY to RUNNING"
"""The line in a broker's log once it serves."""
CLIENTS: Final = 9092
NETWORK: Final = 9093
_SCRIPT: Final = "start.sh"


class MilenaContainer(DockerContainer):
    """Broker and controller in one container, like testcontainers' class for Kafka's image: ``with_network``,
    ``with_kwargs`` and the other methods work as documented there.

    ``settings``: configuration keys, such as ``{"num.partitions": "3"}``; an unknown key is an error. ``timeout``: time
    limit of the start in seconds.
    """

    def __init__(
        self, image: str = "milena-kafka", *, settings: dict[str, str] | None = None, timeout: int = 60
    ) -> None:
        super().__init__(image)
        self._timeout = timeout
        self._settings: dict[str, str] = {}
        self.with_exposed_ports(CLIENTS)
        self.with_settings(_SETTINGS | (settings or {}))

    def with_setting(self, key: str, value: str) -> MilenaContainer:
        """Set a configuration key, as in a ``server.properties``. Raises ConfigError as ``with_settings``."""
        return self.with_settings({key: value})

    def with_settings(self, settings: Mapping[str, str]) -> MilenaContainer:
        """Set several keys. Keys with the prefix of a plug-in (``remote.log.storage.manager.impl.prefix``) are set
        together with the prefix, or later.

        Raises ConfigError for an unknown key, and for one that no variable of the environment can have.
        """
        for variable, value in variables_of(settings, self._settings).items():
            self.with_env(variable, value)
        self._settings.update(settings)
        return self

    def get_bootstrap_server(self) -> str:
        """``host:port`` for clients on this machine."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(CLIENTS)}"

    def get_network_bootstrap_server(self) -> str:
        """``host:port`` for clients in other containers of the network given to ``with_network``."""
        return f"{self.get_container_id()[:12]}:{NETWORK}"

    def start(self) -> MilenaContainer:
        """Start the container and wait until it serves. Raises TimeoutError, and RuntimeError with the last line of its
        log if it ends."""
        # The port for clients is known only after the container has started, so it waits for its start script.
        waits = f"while [ ! -f /tmp/{_SCRIPT} ]; do sleep 0.05; done; exec /bin/sh /tmp/{_SCRIPT}"
        self.with_command(["sh", "-c", waits])
        super().start()
        advertised = f"CLIENTS://{self.get_bootstrap_server()},NETWORK://{self.get_network_bootstrap_server()}"
        lines = (f"export KAFKA_ADVERTISED_LISTENERS={shlex.quote(advertised)}", "exec /etc/kafka/docker/run")
        self.get_wrapped_container().put_archive("/tmp", _archive(_SCRIPT, "\n".join(lines) + "\n"))
        try:
            LogMessageWaitStrategy(SERVES).with_startup_timeout(self._timeout).wait_until_ready(self)
        except RuntimeError as error:
            said = b"".join(self.get_logs()).decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"the container has ended: {said[-1] if said else error}") from error
        return self


def variables_of(settings: Mapping[str, str], earlier: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the image for these settings. ``earlier``: those that are set already. Raises
    ConfigError."""
    for unknown in unknown_keys(plain({**earlier, **settings}, "setting")):
        raise ConfigError(unknown.error)
    found = {variable_of(key): value for key, value in settings.items()}
    lost = sorted(set(settings).difference(from_environment(found)))
    if lost:
        raise ConfigError(f"setting {lost[0]}: variables do not keep upper case; mount a server.properties instead")
    return found


_SETTINGS: Final = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": f"CLIENTS://:{CLIENTS},NETWORK://:{NETWORK},CONTROLLER://:9094",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,NETWORK:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "NETWORK",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


def _archive(name: str, content: str) -> bytes:
    """Return a tar archive with one file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content.encode()), 0o644
        archive.addfile(entry, io.BytesIO(content.encode()))
    return packed.getvalue()
