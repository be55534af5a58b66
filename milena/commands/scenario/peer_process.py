"""A test peer as a process: ``python -m milena.commands.scenario.peer_process NAME server.properties``.

It replaces `milena node` in a scenario on processes (``milena.testing.scenario_processes``).
"""

from __future__ import annotations

import sys

from milena.broker.server import Broker
from milena.command_line.options import Values
from milena.commands.node import COMMAND, checked, join_supervisor, read_settings
from milena.commands.serving import NodeProcess
from milena.config.node_config import NodeConfig
from milena.controller.server import Controller
from milena.lab.scenarios.peers import PEERS
from milena.runtime.context import Runtime
from milena.runtime.process import run_node
from milena.up.layout import ClusterDir, cluster_of


class PeerProcess(NodeProcess):
    """Runs the named peer in place of the node that the properties file describes."""

    def __init__(self, name: str, config: NodeConfig, values: Values, cluster: ClusterDir) -> None:
        super().__init__(config, values, cluster, is_child=False)
        self._make = PEERS[name]
        self._peer_config = config

    def make_broker(self, runtime: Runtime) -> Broker:
        peer = self._make(runtime, self._peer_config)
        assert isinstance(peer, Broker)
        return peer

    def make_controller(self, runtime: Runtime) -> Controller:
        peer = self._make(runtime, self._peer_config)
        assert isinstance(peer, Controller)
        return peer


def main(name: str, properties: str) -> int:
    cluster = cluster_of(properties)
    assert cluster is not None, "test peers replace nodes of a local cluster"
    join_supervisor(cluster)
    values = COMMAND.parse([properties])
    config = checked(read_settings(values, use_environment=False), {})
    return run_node(PeerProcess(name, config, values, cluster).run)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
