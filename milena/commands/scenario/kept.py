"""The cluster that `milena scenario run --keep` leaves running: where it is, and what to try there."""

from __future__ import annotations

import os
import shlex

from milena.lab.scenarios.script import Script, node_id
from milena.testing.scenario_processes import HIDDEN
from milena.up import nodes_file
from milena.up.layout import ClusterDir


class KeptCluster:
    """The cluster of a scenario on processes, in a directory."""

    def __init__(self, directory: str, script: Script) -> None:
        self._cluster = ClusterDir(directory)
        self._script = script

    def fields(self) -> dict[str, object]:
        """Return the directory and the bootstrap servers, for JSON."""
        return {"directory": self._cluster.path, "bootstrap": self._bootstrap()}

    def lines(self) -> list[str]:
        """Return the nodes, and commands to look at them and to end them."""
        lines = [f"The cluster is left running in {self._cluster.path}", f"  bootstrap servers {self._bootstrap()}"]
        for name, entry in self._brokers().items():
            at = "down" if entry["pid"] is None else ", ".join(entry["listeners"].values())
            lines.append(f"  {name} is broker-{entry['id']}: {at}")
        tier = os.path.join(self._cluster.path, "tier")
        if os.path.exists(tier + HIDDEN):
            lines.append(f"  the tier is closed; to open it: mv -T {shlex.quote(tier + HIDDEN)} {shlex.quote(tier)}")
        return [*lines, "Try:", *(f"  {command}" for command in self._commands())]

    def _commands(self) -> list[str]:
        bootstrap, directory = self._bootstrap(), f"--dir {shlex.quote(self._cluster.path)}"
        running = [name for name, entry in self._brokers().items() if entry["pid"] is not None] or ["A"]
        replica = next((name for name in self._script.replicas if name in running), running[0])
        broker = f"broker-{node_id(replica)}"
        return [
            f"kcat -b {bootstrap} -L",
            f"kcat -b {bootstrap} -C -t t -p 0 -o beginning -e -f '%o: %s\\n'",
            f"milena lab {broker} describe_partition topic=t partition=0 {directory}",
            f"milena lab {broker} rules {directory}    # held requests; `release rule=N` releases them",
            *([f"milena tier ls {directory}"] if self._script.tier else []),
            f"milena status {directory}",
            f"milena down {directory}",
        ]

    def _brokers(self) -> dict[str, nodes_file.Entry]:
        """Return the entries of the brokers by their letter in the scenario."""
        entries = {entry["id"]: entry for entry in nodes_file.read(self._cluster.nodes)}
        return {name: entries[node_id(name)] for name in sorted(self._script.brokers)}

    def _bootstrap(self) -> str:
        """Return the addresses of the brokers that run; those of all if none does."""
        entries = self._brokers().values()
        running = [entry for entry in entries if entry["pid"] is not None] or entries
        return ",".join(address for entry in running for address in entry["listeners"].values())
