"""The options with which a cluster was started. Options that are not given keep the values of the last start."""

from __future__ import annotations

import os

from milena.command_line.errors import UserError
from milena.runtime.tcp.hosts import ALL_ADDRESSES
from milena.up import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from milena.command_line.options import Values
    from milena.up.layout import ClusterDir

BROKERS = 3
PORT = 9092
HTTP_PORT = 9280
HOST = "127.0.0.1"
OWN_KEYS = (
    "process.roles", "node.id", "broker.id", "controller.quorum.voters", "controller.listener.names", "listeners",
    "advertised.listeners", "log.dirs", "log.dir",
)  # fmt: skip
"""Keys that `milena up` sets for each node."""
NO_TIER = "none"
"""The value of ``Settings.tier`` for a cluster without a remote tier."""


class Settings:
    """The options of `milena up` that a later start needs."""

    def __init__(self) -> None:
        self.brokers = BROKERS
        self.log_dirs = 1
        """Log directories of each broker."""
        self.port = PORT
        self.host = HOST
        self.advertised_host = ""
        self.cluster_id = ""
        self.kafka_version = ""
        """The release of Kafka that all nodes behave like; "" means the newest."""
        self.controller_port: int | None = None
        self.tier = ""
        """An absolute folder, or a URL for fsspec; "" means ``DIR/remote``."""
        self.metrics: int | None = None
        """The first port of the /metrics endpoints."""
        self.overrides: list[tuple[str, str]] = []
        self.overrides_given = False
        """Whether the overrides are from this command line, not from an earlier start."""

    @property
    def controller_id(self) -> int:
        return max(100, self.brokers + 1)

    @property
    def ports(self) -> range:
        return range(self.port, self.port + self.brokers)

    @property
    def metrics_ports(self) -> range:
        """The ports of the brokers, then of the controller; empty without metrics."""
        return range(0) if self.metrics is None else range(self.metrics, self.metrics + self.brokers + 1)

    @property
    def reachable_host(self) -> str:
        """The host for clients: the advertised host, or the listening address."""
        return bracketed(self.advertised_host or ("127.0.0.1" if self.host in ALL_ADDRESSES else self.host))

    @property
    def local_host(self) -> str:
        """The host by which the nodes reach each other."""
        return bracketed("127.0.0.1" if self.host in ALL_ADDRESSES else self.host)

    def take(self, values: Values) -> None:
        """Apply the options of the command line. Raises UserError."""
        for key in ("brokers", "log_dirs", "port", "host", "advertised_host", "cluster_id", "kafka_version"):
            if key in values.given:
                setattr(self, key, getattr(values, key))
        if {"override", "no_override"} & values.given:
            self.overrides, self.overrides_given = values.override, True
        self._take_metrics(values)
        self._take_tier(values)
        for key, _ in self.overrides:
            if key in OWN_KEYS:
                raise UserError(
                    f"--override {key}: `milena up` sets it for each node; to set it, run single nodes "
                    "with `milena node`"
                )
        if self.brokers < 1:
            raise UserError(f"--brokers {self.brokers}: a cluster needs at least one broker")
        if self.log_dirs < 1:
            raise UserError(f"--log-dirs {self.log_dirs}: a broker needs at least one log directory")
        if not 0 <= self.port <= 65535 - self.brokers + 1:
            raise UserError(f"--port {self.port}: {self.brokers} ports from there on exceed 65535")
        self._check_hosts()
        self._check_metrics()

    def _check_hosts(self) -> None:
        from milena.runtime.tcp.hosts import fault_of, shown

        for option, host in (("--host", self.host), ("--advertised-host", self.advertised_host)):
            fault = fault_of(host.removeprefix("[").removesuffix("]")) if host else None
            if fault is not None:
                raise UserError(f"{option} {shown(host)}: not a host name: {fault}")

    def _take_metrics(self, values: Values) -> None:
        if "no_metrics" in values.given:
            if "metrics" in values.given:
                raise UserError("--metrics and --no-metrics exclude each other")
            self.metrics = None
        elif "metrics" in values.given:
            self.metrics = values.metrics

    def _check_metrics(self) -> None:
        if self.metrics is None:
            return
        if self.metrics > 65535 - self.brokers:
            raise UserError(f"--metrics {self.metrics}: {self.brokers + 1} ports from there on exceed 65535")
        if self.metrics and self.port and set(self.metrics_ports) & set(self.ports):
            raise UserError(
                f"--metrics {self.metrics}: its ports up to {self.metrics_ports[-1]} overlap those of the brokers"
            )

    def _take_tier(self, values: Values) -> None:
        if "no_tier" in values.given:
            if "tier" in values.given:
                raise UserError("--tier and --no-tier exclude each other")
            self.tier = NO_TIER
        elif "tier" in values.given:
            self.tier = tier_place(values.tier)


def tier_place(text: str) -> str:
    """Return a URL unchanged, a folder as an absolute path. Raises UserError."""
    if "://" in text and not text.startswith("file://"):
        return text
    folder = text.removeprefix("file://")
    if not folder:
        raise UserError("--tier needs a folder or a URL")
    return os.path.abspath(os.path.expanduser(folder))


def bracketed(host: str) -> str:
    """Return a host in the form of listeners: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def load(cluster: ClusterDir) -> Settings:
    """Return the settings of the last start, or the defaults."""
    settings = Settings()
    try:
        with open(cluster.settings) as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return settings
    for line in lines:
        key, _, value = line.partition("=")
        if key == "override":
            name, _, text = value.partition("=")
            settings.overrides.append((name, text))
        elif key in ("brokers", "log_dirs", "port", "controller_port", "metrics"):
            setattr(settings, key, int(value))
        elif key in ("host", "advertised_host", "cluster_id", "kafka_version", "tier"):
            setattr(settings, key, value)
    return settings


def save(cluster: ClusterDir, settings: Settings) -> None:
    """Write the settings atomically."""
    keys = (
        "brokers",
        "log_dirs",
        "port",
        "host",
        "advertised_host",
        "cluster_id",
        "kafka_version",
        "controller_port",
        "tier",
        "metrics",
    )
    lines = [f"{key}={value}" for key in keys if (value := getattr(settings, key)) is not None]
    lines += [f"override={key}={value}" for key, value in settings.overrides]
    private_files.replace(cluster.settings, "\n".join(lines) + "\n")


def draw_cluster_id() -> str:
    """Return a random id in Kafka's base64 form, not starting with a dash."""
    from binascii import b2a_base64

    while True:
        text = b2a_base64(os.urandom(16), newline=False).decode().rstrip("=").replace("+", "-").replace("/", "_")
        if not text.startswith("-"):
            return text
