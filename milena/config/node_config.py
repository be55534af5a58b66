"""The checked configuration of one node."""

from __future__ import annotations

from collections.abc import Mapping

from milena.config.definitions import Mode
from milena.config.keys import keys_of
from milena.config.node_rules import check
from milena.config.node_values import NodeValues
from milena.config.providers import check_dynamic_variables, hidden_in, hide, resolve
from milena.config.sources import Settings, plain
from milena.config.values import ConfigError
from milena.releases import NEWEST


class NodeConfig(NodeValues):
    """Validated values: each by itself and all together."""

    def __init__(self, settings: Settings) -> None:
        """Raises ConfigError, which names source and key, for a configuration that Kafka would reject. It does not show
        values of config providers."""
        resolved = resolve(settings)
        self.hidden = hidden_in(resolved)
        """The values of config providers, which messages must not show."""
        try:
            super().__init__(resolved)
            check(self)
        except ConfigError as error:
            raise ConfigError(hide(str(error), self.hidden)) from None

    @classmethod
    def of(cls, **values: object) -> NodeConfig:
        """For tests: keys with ``_`` for ``.``, added to the minimum that a broker needs."""
        least = {
            "node_id": 1,
            "process_roles": "broker",
            "controller_listener_names": "CONTROLLER",
            "controller_quorum_voters": "1000@localhost:9093",
            "listeners": "PLAINTEXT://localhost:9092",
        }
        return cls(plain({name.replace("_", "."): str(value) for name, value in (least | values).items()}))


def check_dynamic(
    overrides: Mapping[str, str],
    *,
    per_broker: bool,
    after: Mapping[str, str] | None = None,
    release: str = NEWEST,
) -> None:
    """Check a broker's dynamic configuration. Raises ConfigError with Kafka's message.

    ``per_broker``: the configuration of one broker, else the cluster-wide default. ``after``: the whole configuration
    with the config providers, if ``overrides`` are only changes. ``release``: the release whose keys are checked.
    """
    known = keys_of(release).dynamic
    keys = {name: known[name] for name in overrides if name in known}
    fixed = sorted(name for name, key in keys.items() if key.mode is Mode.READ_ONLY)
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    single = sorted(name for name, key in keys.items() if key.mode is Mode.PER_BROKER)
    if single and not per_broker:
        raise ConfigError(f"Cannot update these configs at default cluster level: [{', '.join(single)}]")
    for name, key in keys.items():
        if not check_dynamic_variables(name, overrides[name], overrides if after is None else after):
            key.parse(overrides[name])
