"""The nodes of a cluster and the server.properties of each."""

from __future__ import annotations

import os

from milena.command_line.errors import UserError
from milena.releases import KEY as KAFKA_VERSION
from milena.up import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from milena.up.layout import ClusterDir
    from milena.up.nodes_file import Entry
    from milena.up.settings import Settings


class NodePlan:
    """The configuration of one node."""

    def __init__(
        self, cluster: ClusterDir, node_id: int, role: str, listener: str, address: str, log_dirs: int = 1
    ) -> None:
        """``log_dirs``: the number of log directories."""
        self.id = node_id
        self.role = role
        self.name = f"{role}-{node_id}"
        self.listener = listener
        self.address = address
        """The address ``host:port`` for clients and other nodes."""
        self.properties = cluster.properties(self.name)
        self.data = cluster.data(self.name)
        self.log_dirs = [self.data, *(f"{self.data}-{number}" for number in range(2, log_dirs + 1))]
        self.log = cluster.log(self.name)
        self.remote = cluster.remote
        """The folder of the remote tier, unless the settings name another place."""
        self.metrics: int | None = None
        """The port of its /metrics; None without metrics."""
        self.metrics_address = ""
        """``host:port`` of its /metrics, or an empty string."""

    def entry(self, pid: int | None) -> Entry:
        """Return the node's entry for nodes.json."""
        entry: Entry = {
            "id": self.id,
            "roles": [self.role],
            "pid": pid,
            "listeners": {self.listener: self.address},
            "log.dirs": self.log_dirs,
            "ready": False,
        }
        return entry | ({"metrics": self.metrics_address} if self.metrics_address else {})

    def options(self, settings: Settings) -> list[str]:
        """Return the options of `milena node` in addition to the node's properties file."""
        if self.metrics is None:
            return []
        return ["--control", str(self.metrics), "--control-host", settings.host]


# As in tiered.tier_config, which is too expensive to import here.
LOCAL_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
FSSPEC_STORAGE = "milena.tiered.FsspecRemoteStorage"


def nodes_of(cluster: ClusterDir, settings: Settings) -> list[NodePlan]:
    """Return the controller, then the brokers by id."""
    controller = NodePlan(
        cluster,
        settings.controller_id,
        "controller",
        "CONTROLLER",
        f"{settings.local_host}:{settings.controller_port}",
    )
    brokers = [
        NodePlan(cluster, index, "broker", "PLAINTEXT", f"{settings.reachable_host}:{port}", settings.log_dirs)
        for index, port in enumerate(settings.ports, 1)
    ]
    for plan, number in zip([*brokers, controller], settings.metrics_ports, strict=False):
        plan.metrics, plan.metrics_address = number, f"{settings.local_host}:{number}"
    return [controller, *brokers]


def properties_of(settings: Settings, node: NodePlan, controller: NodePlan) -> dict[str, str]:
    """Return the properties that the cluster needs of a node, with the user's overrides applied."""
    from milena.up.settings import bracketed

    properties = {
        "process.roles": node.role,
        "node.id": str(node.id),
        "controller.quorum.voters": f"{controller.id}@{controller.address}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": ",".join(node.log_dirs),
    }
    if settings.kafka_version:
        properties[KAFKA_VERSION] = settings.kafka_version
    if node.role == "controller":
        properties["listeners"] = f"CONTROLLER://{controller.address}"
    else:
        port = settings.port + node.id - 1
        properties["listeners"] = f"PLAINTEXT://{bracketed(settings.host)}:{port}"
        properties["advertised.listeners"] = f"PLAINTEXT://{node.address}"
        replicas = min(3, settings.brokers)
        properties["offsets.topic.replication.factor"] = str(replicas)
        properties["transaction.state.log.replication.factor"] = str(replicas)
        properties["transaction.state.log.min.isr"] = str(max(1, replicas - 1))
        # As in Kafka's own server.properties: on one machine there is no need to wait for more members.
        properties["group.initial.rebalance.delay.ms"] = "0"
    return properties | tier_properties(settings, node)


def check_overrides(settings: Settings, plans: list[NodePlan]) -> None:
    """Raise UserError, which names the option, if a node would reject its configuration."""
    if not settings.overrides:
        return
    # costs 20 ms and 3 MiB, which a start without overrides does not need
    from milena.config.node_config import NodeConfig
    from milena.config.protection import check_authorizer
    from milena.config.sources import from_overrides, plain
    from milena.config.values import ConfigError

    overrides = from_overrides(f"{key}={value}" for key, value in settings.overrides)
    for plan in plans:
        try:
            NodeConfig(plain(properties_of(settings, plan, plans[0]), plan.name) | overrides)
            check_authorizer(overrides, os.environ)
        except ConfigError as error:
            text = str(error)
            raise UserError(text if text.startswith("--override ") else f"--override: {text}") from None


def write_properties(settings: Settings, node: NodePlan, controller: NodePlan) -> None:
    """Write a node's server.properties."""
    properties = properties_of(settings, node, controller) | dict(settings.overrides)
    os.makedirs(os.path.dirname(node.properties), exist_ok=True)
    text = "".join(f"{key}={escaped(value)}\n" for key, value in properties.items())
    private_files.replace(node.properties, f"# Written by `milena up` at each start.\n{text}")


def read_properties(node: NodePlan) -> str | None:
    """Return the content of a node's server.properties; None if there is none."""
    try:
        with open(node.properties) as file:
            return file.read()
    except FileNotFoundError:
        return None


def tier_properties(settings: Settings, node: NodePlan) -> dict[str, str]:
    """Return the properties of the remote tier. The controller only needs to know that there is one."""
    from milena.up.settings import NO_TIER

    if settings.tier == NO_TIER:
        return {}
    properties = {"remote.log.storage.system.enable": "true"}
    if node.role == "broker":
        place = settings.tier or node.remote
        if "://" in place:
            properties |= {"remote.log.storage.manager.class.name": FSSPEC_STORAGE, "rsm.config.url": place}
        else:
            properties |= {"remote.log.storage.manager.class.name": LOCAL_STORAGE, "rsm.config.dir": place}
        properties["remote.log.metadata.manager.listener.name"] = "PLAINTEXT"
        copies = str(min(3, settings.brokers))
        properties["rlmm.config.remote.log.metadata.topic.replication.factor"] = copies
    return properties


def escaped(value: str) -> str:
    """Escape a value for Java's properties files: all characters except plain text."""
    text = value.replace("\\", "\\\\")
    text = "".join(character if " " <= character <= "~" else f"\\u{ord(character):04x}" for character in text)
    return f"\\{text}" if text.startswith(" ") else text
