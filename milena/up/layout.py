"""The files in the directory of a cluster.

DIR/.lock              flock of the running `milena up`
DIR/.state.lock        flock of a reset, snapshot or restore, with which others wait
DIR/.alive, .status    named pipes: end of file when the supervisor ends; messages of nodes to the supervisor
DIR/nodes.json         the nodes as they are now
DIR/settings           the options of the last start
DIR/.lab               exists while the cluster runs with --lab
DIR/NODE.sock          Unix socket for lab commands to a node, with --lab
DIR/logs/NODE.log      standard error of each node
DIR/http-token, http-address, .http-code   with --http: see milena/up/http_files.py
DIR/remote             the remote tier, unless --tier names another place
DIR/NODE/server.properties, DIR/NODE/data
DIR/NODE/incarnation   of a broker that runs: what it has registered with
DIR/NODE/resume        until a node that was restored from a snapshot starts
"""

from __future__ import annotations

import os

from milena.command_line.errors import UserError

DEFAULT_DIR = "milena-data"
LAB = "MILENA_LAB"
"""Environment variable of a container: the folder with the socket of its one node, and a nodes.json that lists it."""


class ClusterDir:
    """The paths of one cluster, all absolute."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        if "," in self.path:
            raise UserError(f"{self.path}: a cluster's directory cannot have a comma in its path (log.dirs is a list)")
        self.lock = os.path.join(self.path, ".lock")
        self.state_lock = os.path.join(self.path, ".state.lock")
        self.alive = os.path.join(self.path, ".alive")
        self.status = os.path.join(self.path, ".status")
        self.nodes = os.path.join(self.path, "nodes.json")
        self.settings = os.path.join(self.path, "settings")
        self.lab = os.path.join(self.path, ".lab")
        self.logs = os.path.join(self.path, "logs")
        self.remote = os.path.join(self.path, "remote")
        self.http_token = os.path.join(self.path, "http-token")
        self.http_address = os.path.join(self.path, "http-address")
        self.http_code = os.path.join(self.path, ".http-code")
        self.own_log = os.path.join(self.logs, "up.log")

    @property
    def is_default(self) -> bool:
        """Whether commands in the present folder need no ``--dir``."""
        return self.path == os.path.abspath(DEFAULT_DIR)

    def log(self, node: str) -> str:
        return os.path.join(self.logs, f"{node}.log")

    def socket(self, node: str) -> str:
        return os.path.join(self.path, f"{node}.sock")

    def folder(self, node: str) -> str:
        return os.path.join(self.path, node)

    def properties(self, node: str) -> str:
        return os.path.join(self.path, node, "server.properties")

    def data(self, node: str) -> str:
        return os.path.join(self.path, node, "data")

    def incarnation(self, node: str) -> str:
        """The file with the incarnation with which a node's broker has registered."""
        return os.path.join(self.path, node, "incarnation")

    def resume(self, node: str) -> str:
        """The file for the next start of a restored node, which is read once: the incarnation with which a broker
        continues; the brokers' present addresses, and those that ended, for a controller."""
        return os.path.join(self.path, node, "resume")

    def create(self) -> None:
        """Create the folders. Raises UserError if that fails, or within the folder of a node."""
        for name in ("server.properties", "meta.properties"):
            if os.path.exists(os.path.join(self.path, name)) and not self.exists():
                raise UserError(f"{self.path} is a node's folder (it has {name}): name another folder with --dir")
        try:
            os.makedirs(self.logs, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create {self.logs}: {error.strerror}") from None

    def is_lab(self) -> bool:
        return os.path.exists(self.lab)

    def exists(self) -> bool:
        return os.path.exists(self.settings)


def cluster_of(properties: str) -> ClusterDir | None:
    """Return the cluster that a node's properties file belongs to, or None for a standalone node."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(properties)))
    return ClusterDir(folder) if os.path.exists(os.path.join(folder, "settings")) and "," not in folder else None
