"""Listeners: names, security protocols and addresses, with Kafka's rules about them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from milena.config.values import ConfigError, Value
from milena.runtime.numbers import whole
from milena.runtime.tcp.hosts import LAST_PORT, fault_of, shown

NAMES_KEY: Final = "controller.listener.names"
MAP_KEY: Final = "listener.security.protocol.map"
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ENDPOINT: Final = re.compile(r"(?P<name>.*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a listener. An empty host is the wildcard address."""

    name: str
    host: str
    port: int
    security_protocol: str


def parse_protocol_map(text: str) -> dict[str, str]:
    """Return listener names with their security protocols. Raises ConfigError."""
    key = MAP_KEY
    protocols: dict[str, str] = {}
    for entry in filter(None, re.split(r"\s*,\s*", text.strip())):
        name, separator, protocol = entry.rpartition(":")
        if not separator:
            raise ConfigError(f"Error parsing configuration property '{key}': {entry!r} is not NAME:PROTOCOL")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if protocol not in SECURITY_PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol}` defined in {key}")
        protocols[name] = protocol
    return protocols


def parse_endpoints(entries: Sequence[str], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Parse ``NAME://host:port`` entries. Raises ConfigError."""
    found = []
    for entry in entries:
        match = ENDPOINT.fullmatch(entry)
        port = whole(match["port"]) if match is not None else None
        if match is None or port is None or not 0 <= port <= LAST_PORT:
            raise _failed(entries, f"Unable to parse {entry} to a broker endpoint")
        name = match["name"].upper()
        if name not in protocols:
            raise _failed(entries, f"No security protocol defined for listener {name}")
        fault = fault_of(match["host"]) if match["host"] else None
        if fault is not None:
            raise _failed(entries, f"The host {shown(match['host'])} of listener {name} is not a host name: {fault}")
        found.append(Endpoint(name, match["host"], port, protocols[name]))
    return tuple(found)


def check_distinct(entries: Sequence[str], endpoints: Sequence[Endpoint]) -> None:
    """Check that names and ports are unique; an IPv4 and an IPv6 address may share a port. Raises ConfigError."""
    shown = _shown(entries)
    if len({endpoint.name for endpoint in endpoints}) < len(endpoints):
        raise _failed(entries, f"Each listener must have a different name, listeners: {shown}")
    by_port: dict[int, list[str]] = {}
    for endpoint in endpoints:
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint.host)
    for port, hosts in by_port.items():
        if len(hosts) == 1:
            continue
        families = [_family(host) for host in hosts]
        if len(hosts) > 2 or None in families:
            raise _failed(entries, f"Each listener must have a different port, listeners: {shown}")
        if families[0] == families[1]:
            raise _failed(
                entries,
                "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
                f"listeners: {shown}, port: {port}",
            )


def _family(host: str) -> int | None:
    """Return 4 or 6 for a numeric address, None for a name."""
    if ":" in host:
        return 6
    return 4 if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", host) else None


def _shown(entries: Sequence[str]) -> str:
    return f"[{', '.join(entries)}]"


def _failed(entries: Sequence[str], why: str) -> ConfigError:
    return ConfigError(f"Error creating broker listeners from '{_shown(entries)}': {why}")


def ip_overrides(text: str) -> dict[str, int]:
    """Parse the ``host:count`` pairs of max.connections.per.ip.overrides. Raises ConfigError."""
    overrides: dict[str, int] = {}
    for entry in filter(None, re.split(r"\s*,\s*", text.strip())):
        host, _, count = entry.rpartition(":")
        number = whole(count.strip())
        if not host or number is None or number < 0:
            raise ConfigError(f"max.connections.per.ip.overrides: {entry!r} is not host:count")
        overrides[host.strip()] = number
    return overrides


@dataclass(frozen=True, slots=True)
class Listeners:
    """All addresses of a node, by the role that they serve."""

    all: tuple[Endpoint, ...]
    broker: tuple[Endpoint, ...]
    controller: tuple[Endpoint, ...]
    advertised_broker: tuple[Endpoint, ...]
    advertised_controller: tuple[Endpoint, ...]
    protocols: Mapping[str, str]
    inter_broker: str
    controller_names: tuple[str, ...]

    @classmethod
    def of(cls, values: Mapping[str, Value], *, explicit_map: bool, voter: tuple[str, int] | None = None) -> Listeners:
        """``voter``: (host, port) of this node in controller.quorum.voters. Raises ConfigError."""
        names = tuple(name.upper() for name in _list(values[NAMES_KEY]))
        entries = _list(values["listeners"])
        protocols = parse_protocol_map(str(values[MAP_KEY]))
        if not explicit_map and not _uses_security(entries, names):
            protocols = dict.fromkeys(names, "PLAINTEXT") | protocols
        everything = parse_endpoints(entries, protocols)
        check_distinct(entries, everything)
        advertised = parse_endpoints(_list(values["advertised.listeners"]), protocols)
        own = {endpoint.name: endpoint for endpoint in advertised}
        controller = tuple(endpoint for endpoint in everything if endpoint.name in names)
        for name in names:
            if name not in protocols:
                raise ConfigError(
                    f"Controller listener with name {name} defined in {NAMES_KEY} not found in {MAP_KEY}  (an explicit "
                    f"security mapping for each controller listener is required if {MAP_KEY} is non-empty, "
                    "or if there are security protocols other than PLAINTEXT in use)"
                )
        return cls(
            all=everything,
            broker=tuple(endpoint for endpoint in everything if endpoint.name not in names),
            controller=controller,
            advertised_broker=tuple(e for e in advertised or everything if e.name not in names),
            advertised_controller=tuple(own.get(e.name) or _advertised(e, names, voter) for e in controller),
            protocols=protocols,
            inter_broker=_inter_broker(values, protocols),
            controller_names=names,
        )


def _advertised(endpoint: Endpoint, names: tuple[str, ...], voter: tuple[str, int] | None) -> Endpoint:
    """Return the advertised address of a controller's listener that advertised.listeners does not name: its own, or for
    a wildcard address that of its entry in controller.quorum.voters. An empty host means the machine's host name
    (KafkaConfig.effectiveAdvertisedControllerListeners)."""
    if endpoint.host not in ("", "0.0.0.0"):
        return endpoint
    if voter is not None and endpoint.name == names[0]:
        return replace(endpoint, host=voter[0], port=voter[1])
    return replace(endpoint, host="")


def _list(value: Value) -> tuple[str, ...]:
    assert value is None or isinstance(value, tuple)
    return value or ()


def _uses_security(entries: tuple[str, ...], names: tuple[str, ...]) -> bool:
    used = {entry.partition("://")[0].upper() for entry in entries} | set(names)
    return bool(used & {"SSL", "SASL_SSL", "SASL_PLAINTEXT"})


def _inter_broker(values: Mapping[str, Value], protocols: Mapping[str, str]) -> str:
    name = values["inter.broker.listener.name"]
    if name is None:
        return str(values["security.inter.broker.protocol"])
    if str(name).upper() not in protocols:
        raise ConfigError(f"Listener with name {name} defined in inter.broker.listener.name not found in {MAP_KEY}.")
    return str(name).upper()
