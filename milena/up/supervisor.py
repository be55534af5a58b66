"""The supervisor: starts the nodes of a cluster, watches them, and stops them in order.

States of a node:  starting -> ready -> down -> (`milena lab NODE start` or `milena node`) starting -> ready
All nodes are started at the same time; the cluster is ready when every node has reported ready (a broker: unfenced).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from milena.command_line.errors import UserError, reason_of
from milena.releases import NEWEST
from milena.up import channel, locks, nodes_file, ports, private_files, processes, tier_location
from milena.up.plan import check_overrides, nodes_of, read_properties, write_properties
from milena.up.processes import PARENT_FD, NodeProcess
from milena.up.settings import draw_cluster_id, save

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set

    from milena.up.http_server import HttpServer
    from milena.up.layout import ClusterDir
    from milena.up.plan import NodePlan
    from milena.up.settings import Settings
    from milena.up.view import View


ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class Wakeups:
    """SIGTERM, SIGINT, SIGHUP and SIGCHLD of this process as bytes in a pipe, so that one poll waits for all events.
    One per process."""

    def __init__(self) -> None:
        self.fd, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGCHLD):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores it
                signal.signal(number, lambda *_: None)

    def received(self) -> Set[int]:
        """Return the signals received since the last call."""
        try:
            return set(os.read(self.fd, 4096))
        except BlockingIOError:
            return set()

    def wait(self, seconds: float) -> Set[int]:
        """Wait for a signal for at most ``seconds``; return the signals received."""
        select.select([self.fd], [], [], seconds)
        return self.received()


STARTING, READY, DOWN = "starting", "ready", "down"
ORPHANS_END = 15.0
"""Seconds to wait for nodes whose former supervisor was killed: they are stopping."""
STOP_LIMIT = 30.0
"""Seconds that the nodes of one role may take to stop before they are killed."""
PATIENCE = 0.5
"""Seconds after which another Ctrl-C kills the nodes that are still stopping."""
POLL = 0.1
"""Seconds between checks of processes that are not our children, whose end causes no signal."""
TICK_MS = 1000


class NotStarted(UserError):
    """A node ended before the cluster was ready."""


class SupervisedNode:
    """A node and its process."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.process: NodeProcess | None = None
        self.state = DOWN
        self.wanted = False
        """Whether to start the node when its process has ended."""

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None


class Supervisor:
    """Owns the processes of one cluster. ``run`` returns the exit code."""

    def __init__(
        self,
        cluster: ClusterDir,
        settings: Settings,
        former: Settings,
        view: View,
        node_options: dict[str, list[str]],
        *,
        lab: bool = False,
        http: HttpServer | None = None,
        from_snapshot: bool = False,
    ) -> None:
        """``from_snapshot``: the cluster was just made from a snapshot."""
        self._cluster = cluster
        self._settings = settings
        self._former = former
        """The settings of the last start, restored if this start fails."""
        self._view = view
        self._node_options = node_options
        self._lab = lab
        self._http = http
        self._from_snapshot = from_snapshot
        self._former_properties: dict[str, str | None] = {}
        """The former properties files by path; None if there was no file."""
        self._topics_left: list[tuple[str, str, str]] = []
        self._stop_requested = False
        self._announced = False
        self.nodes: list[SupervisedNode] = []

    def run(self, topics: list[tuple[str, str, str]]) -> int:
        """Start all nodes and run until stopped. Raises UserError if the cluster cannot start."""
        self._topics_left = topics
        self._cluster.create()
        lock = locks.lock_directory(self._cluster.path, self._cluster.lock)
        try:
            self._prepare()
            self._wakeups = Wakeups()
            self._channel = channel.SupervisorEnd(self._cluster)
            try:
                self._start_all()
                self._watch()
            except NotStarted:
                # Options with which no node could start must not be used by the next start.
                self._former.cluster_id = self._former.cluster_id or self._settings.cluster_id
                save(self._cluster, self._former)
                self._restore_properties()
                raise
            finally:
                self._stop_all()
        finally:
            os.close(lock)
        return 0

    def _prepare(self) -> None:
        """The checks before the first process is started."""
        settings = self._settings
        names = [name for name in os.listdir(self._cluster.path) if os.path.isdir(self._cluster.folder(name))]
        # Nodes whose supervisor was killed stop by themselves, and hold their directories until then.
        held = locks.wait_released([os.path.join(self._cluster.data(name), ".lock") for name in names], ORPHANS_END)
        if held:
            raise UserError(f"{os.path.dirname(held)} is in use by a running node")
        if settings.port == 0:
            settings.port = ports.free(settings.host, settings.brokers, avoid=settings.metrics_ports)[0]
        ports.check(settings.host, settings.ports)
        local = settings.local_host.strip("[]")
        if settings.metrics == 0:
            settings.metrics = ports.free(settings.host, settings.brokers + 1, avoid=settings.ports)[0]
        ports.check(settings.host, settings.metrics_ports, "--metrics")
        taken, own = {*settings.ports, *settings.metrics_ports}, settings.controller_port
        # Keep the controller's port of the last start, unless another process uses it now.
        if own is None or own in taken or ports.refusal(local, own) is not None:
            settings.controller_port = ports.free(local, 1, avoid=taken)[0]
        settings.cluster_id = settings.cluster_id or draw_cluster_id()
        plans = nodes_of(self._cluster, settings)
        check_overrides(settings, plans)
        self._check_tier(plans[1])
        for plan in plans:
            self._former_properties[plan.properties] = read_properties(plan)
            write_properties(settings, plan, plans[0])
        save(self._cluster, settings)
        if self._from_snapshot:
            from milena.up import snapshots

            addresses = {plan.id: plan.address for plan in plans if plan.role == "broker"}
            snapshots.move(self._cluster, plans[0].name, addresses)
        self._mark_lab()
        planned = {plan.data for plan in plans}
        left = sorted(name for name in names if os.path.isdir(data := self._cluster.data(name)) and data not in planned)
        if left:
            self._view.warn(
                f"--brokers {settings.brokers}: these nodes have data here but are not started: {', '.join(left)}"
            )
        self.nodes = [SupervisedNode(plan) for plan in plans]
        for key, value in () if settings.overrides_given else settings.overrides:
            self._view.line(f"--override {key}={value} still applies, from an earlier start")
        if settings.kafka_version not in ("", NEWEST):
            self._view.line(f"the nodes behave like Kafka {settings.kafka_version} (--kafka-version)")
        for plan in plans:
            if plan.metrics_address:
                self._view.line(f"{plan.name} has metrics at http://{plan.metrics_address}/metrics")

    def _check_tier(self, broker: NodePlan) -> None:
        """Warn of a questionable remote tier. Raises UserError if it cannot be used."""
        place = tier_location.place_of(self._settings, broker)
        if place is None:
            return
        former = tier_location.place_of(self._former, broker) if self._cluster.exists() else None
        warnings = tier_location.check(place, self._settings.brokers)
        for warning in warnings + ([] if former is None else tier_location.moved(former, place, broker)):
            self._view.warn(warning)

    def _restore_properties(self) -> None:
        """Restore the properties files: nodes started by hand must not use properties with which none could start."""
        for path, text in self._former_properties.items():
            if text is not None:
                private_files.replace(path, text)

    def _mark_lab(self) -> None:
        """Create or remove the marker of lab mode, which nodes check, also those that are started by hand."""
        if self._lab:
            os.close(os.open(self._cluster.lab, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        elif os.path.exists(self._cluster.lab):
            os.unlink(self._cluster.lab)

    def _start(self, node: SupervisedNode) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KAFKA_")}
        environment |= {"CLUSTER_ID": self._settings.cluster_id}
        options = self._node_options.get(node.plan.role, []) + node.plan.options(self._settings)
        node.process = processes.start(node.plan, self._channel.for_children, environment, options)
        node.state = STARTING

    def _start_all(self) -> None:
        for node in self.nodes:
            self._start(node)
        nodes_file.write(self._cluster.nodes, [node.plan.entry(node.pid) for node in self.nodes])
        if self._http is not None:
            self._http.start(self._channel.for_children)
        self._view.show(self.nodes)

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._channel.fd, select.POLLIN)
        poll.register(self._wakeups.fd, select.POLLIN)
        parent = int(os.environ.get(PARENT_FD, "-1"))
        if parent >= 0:  # the process that started us wants us to end with it
            os.set_inheritable(parent, False)
            poll.register(parent, select.POLLIN)
        while not self._stop_requested:
            events = dict(poll.poll(TICK_MS))
            self._stop_requested |= bool(self._wakeups.received() & ENDING) or parent in events
            # Ended processes first: a node that was restarted at once reports with another pid.
            messages = self._channel.read()
            self._handle_exits()
            self._handle_exit_of_http()
            for message in messages:
                self._handle_message(message)
            self._view.show(self.nodes)
            self._announce()

    def _handle_message(self, message: channel.Message) -> None:
        if message.event == channel.STOP:
            self._stop_requested = True
        if message.event == channel.HTTP_READY and self._http is not None:
            self._http.ready = True
            for line in self._http.lines(secret=sys.stderr.isatty()):
                self._view.line(line)
        for node in self.nodes:
            if node.plan.id != message.node_id:
                continue
            if message.event == channel.START:
                # A node that has reported that it is down may take a moment to exit.
                node.wanted = node.process is not None and nodes_file.is_down(self._cluster.nodes, node.plan.id)
                if node.process is None:
                    self._start_again(node)
                continue
            if node.process is None:
                node.process = NodeProcess(message.pid, 0, child=False)
                node.state = STARTING
                self._view.line(f"{node.plan.name} was restarted (pid {message.pid})")
            if message.event == channel.READY and node.pid == message.pid:
                node.state = READY
                nodes_file.mark_ready(self._cluster.nodes, node.plan.id, message.pid)

    def _start_again(self, node: SupervisedNode) -> None:
        node.wanted = False
        try:
            self._cluster.create()  # the folders may have been removed, as by a broken disk
            if not os.path.exists(node.plan.properties):
                write_properties(self._settings, node.plan, self.nodes[0].plan)
            self._start(node)
        except (OSError, UserError) as error:
            said = reason_of(error) if isinstance(error, OSError) else error
            self._view.line(f"{node.plan.name} cannot be started: {said}")
            return
        nodes_file.renew(self._cluster.nodes, node.plan.entry(node.pid))

    def _handle_exits(self) -> None:
        for node in self.nodes:
            reason = node.process.exit_reason() if node.process else None
            if node.process is None or reason is None:
                continue
            words = processes.last_words(node.plan.log, node.process.log_start)
            if self._announced and not self._stop_requested:
                self._view.line(f"{node.plan.name} {reason}; to restart it: {self._restart_command(node.plan)}")
            nodes_file.mark_down(self._cluster.nodes, node.plan.id, node.process.pid)
            node.process, node.state = None, DOWN
            if not self._announced and not self._stop_requested:
                raise NotStarted(
                    f"{node.plan.name} {reason} before the cluster was ready: {words or 'its log is empty'}"
                )
            if node.wanted:
                self._start_again(node)

    def _handle_exit_of_http(self) -> None:
        ended = None if self._http is None else self._http.take_exit()
        if self._http is None or ended is None:
            return
        reason, soon = ended
        if not self._announced and not self._stop_requested:
            raise NotStarted(reason)
        self._view.line(f"{reason}; it is {'not ' if soon else ''}started again")
        if not soon:
            self._http.start(self._channel.for_children)

    def _restart_command(self, node: NodePlan) -> str:
        """Return the command that restarts a node. Not `milena node`, because the node's folder may be missing."""
        from shlex import quote

        where = "" if self._cluster.is_default else f" --dir {quote(self._cluster.path)}"
        return f"milena lab {node.name} start{where}"

    def _announce(self) -> None:
        """Print once that the cluster is ready, after creating the requested topics."""
        if self._announced or any(node.state != READY for node in self.nodes):
            return
        if self._http is not None and not self._http.ready:
            return
        bootstrap = ",".join(node.plan.address for node in self.nodes if node.plan.role == "broker")
        for name, partitions, replicas in self._topics_left:
            for warning in _create_topic(bootstrap, name, partitions, replicas):
                self._view.warn(warning)
        self._announced = True
        self._view.ready(f"ready bootstrap={bootstrap}")

    def _stop_all(self) -> None:
        """Stop the brokers, which need the controller for their controlled shutdown, then the controller."""
        begin = time.monotonic()
        if self._http is not None:
            self._http.stop()
        for role in ("broker", "controller"):
            running = self._still_running([node for node in self.nodes if node.plan.role == role])
            signal_all(running, signal.SIGTERM)
            signal_all(running, signal.SIGCONT)  # for paused processes
            deadline = time.monotonic() + STOP_LIMIT
            while self._still_running(running) and time.monotonic() < deadline:
                # A second Ctrl-C kills immediately. (timeout(1) and make send their first signal twice.)
                if signal.SIGINT in self._wakeups.wait(POLL) and time.monotonic() > begin + PATIENCE:
                    deadline = 0
            for node in self._still_running(running):
                self._view.line(f"{node.plan.name} did not stop and is killed")
            signal_all(running, signal.SIGKILL)
            while self._still_running(running):
                self._wakeups.wait(POLL)
        self._view.end(self.nodes)

    def _still_running(self, nodes: list[SupervisedNode]) -> list[SupervisedNode]:
        for node in nodes:
            if node.process and node.process.exit_reason() is not None:
                nodes_file.mark_down(self._cluster.nodes, node.plan.id, node.process.pid)
                node.process, node.state = None, DOWN
        return [node for node in nodes if node.process]


def signal_all(nodes: list[SupervisedNode], number: int) -> None:
    for node in nodes:
        if node.process:
            node.process.signal(number)


def _create_topic(bootstrap: str, name: str, partitions: str, replicas: str) -> list[str]:
    """Create a topic with `milena topic create`, unless it exists: the supervisor does not import a client. Return
    warnings, such as for an existing topic of another size. Raises UserError with the command's error."""
    command = [sys.executable, "-P", "-m", "milena", "topic", "create", name, "--bootstrap-server", bootstrap]
    command += ["--partitions", partitions, "--replicas", replicas, "--if-not-exists", "--quiet"]
    reading, writing = os.pipe2(os.O_CLOEXEC)
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, writing, 2)]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
    os.close(writing)
    with os.fdopen(reading, errors="replace") as output:
        said = [line.strip() for line in output if line.strip()]
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        reason = said[-1].removeprefix("milena: ") if said else "`milena topic create` printed no error"
        raise UserError(f"--topic {name}: {reason}")
    return [f"--topic {name}: {line.removeprefix('warning: ')}" for line in said]
