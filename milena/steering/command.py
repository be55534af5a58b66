"""`milena lab`: send a command to a node, or control its process."""

from __future__ import annotations

import json
import os
import sys

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, key_value, nearest
from milena.steering.caller import NodeCommands, NotListening
from milena.steering.nodes import SteeredNode
from milena.up import nodes_file
from milena.up.detached import known
from milena.up.layout import DEFAULT_DIR, LAB, ClusterDir
from milena.up.processes import is_paused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def start(node: SteeredNode) -> str | None:
    """Start the node. Return a message if it does not serve yet."""
    return None if node.start() else f"{node.name} runs but does not serve yet: see `milena logs {node.name}`"


def wipe(node: SteeredNode) -> str | None:
    """Delete the content of its log directories. Return a message if some do not exist."""
    missing = node.wipe()
    return f"{node.name}: nothing to wipe, {', '.join(missing)} does not exist" if missing else None


OF_PROCESSES: dict[str, Callable[[SteeredNode], str | None]] = {
    "start": start,
    "stop": SteeredNode.stop,
    "kill": SteeredNode.kill,
    "power_off": SteeredNode.power_off,
    "wipe": wipe,
    "pause": SteeredNode.pause,
    "resume": SteeredNode.resume,
}

OF_NODES = (
    "hold", "drop", "delay", "disconnect", "fail", "trace", "traced", "release", "wait", "rules", "clear", "help",
    "cut", "heal", "links", "ready", "image", "describe_partition", "read_log", "roll", "flush", "retention", "tiering",
    "remote_segments", "remote_reads", "cleaner_offsets", "metric", "fetchers", "follower_transitions", "brokers",
    "partitions", "fail_disk",
    "fill_disk", "slow_disk", "jump_clock", "break_tier", "lost_objects", "mend", "reset", "settle", "erase_tier",
    "troubles",
)  # fmt: skip
"""The commands of brokers and controllers, for error messages if no node can be asked."""

COMMAND = CommandLine(
    "lab",
    "Control one node of a test cluster. For any node's process:\n"
    "  stop      clean shutdown                   start   again, under its `milena up`\n"
    "  kill      kill -9: the page cache stays    wipe    empty its log directories while it is down\n"
    "  pause     SIGSTOP                          resume  SIGCONT\n"
    "For nodes of `milena up --lab` (`help` lists all):\n"
    "  power_off                                  exit, leaving the files as a power loss would\n"
    "  fail_disk, fill_disk path=                 a log directory fails, or is full, until the node is restarted\n"
    "  slow_disk path= ms=                        each sync takes ms longer; 0 ends it\n"
    "  jump_clock ms=                             set the wall clock ahead, or back if negative; 0 ends it\n"
    "  break_tier away=true delay_ms= lose=0.1    a broker's tier fails, is slow, loses a share of new segments, or\n"
    "             odd=                            gives wrong answers (page, json, value, cancelled, short, sizes);\n"
    "                                             without arguments it works again. lost_objects lists what is lost\n"
    "  mend                                       end all rules, cuts, delays and faults of the clock and the tier\n"
    "  troubles                                   the wall clock, and the numbers of failed and delayed calls and of\n"
    "                                             wrong answers\n"
    "  hold, drop, delay, disconnect, fail        rules for requests: api=, peer=, node=, topic=, partition=, group=,\n"
    "                                             transactional_id=, every=N (each n-th),\n"
    "                                             probability=0.1, count=, ms=, error=,\n"
    "                                             side=request or response; returns the\n"
    "                                             rule's number. fail with topic= fails only its\n"
    "                                             partitions, of Produce, Fetch, ListOffsets,\n"
    "                                             OffsetCommit, OffsetForLeaderEpoch and\n"
    "                                             DeleteRecords\n"
    "  trace, traced                              record requests with their responses, and show them\n"
    "  release, wait, rules, clear                release the requests of a rule, wait for its hits, list rules\n"
    "  cut, heal, links                           cut the link with peer=, direction=in, out or both\n"
    "  describe_partition, read_log, roll, retention, metric, fetchers, follower_transitions, image of brokers\n"
    "  brokers, partitions, image                                            of the controller\n"
    "A peer is a node id or a prefix of a client id.",
    [Option("--dir", "the cluster's directory", "DIR", default=DEFAULT_DIR)],
    [
        Positional("NODE", "a node's id or name, as `milena status` shows them"),
        Positional("COMMAND", "what to do"),
        Positional("ARGUMENT=VALUE", "arguments of the command", many=True),
    ],
    [
        "milena up --lab --detach",
        "milena lab controller-100 hold api=ALTER_PARTITION peer=1",
        "milena lab controller-100 release rule=1",
        "milena lab broker-1 cut peer=100 direction=out",
        "milena lab broker-2 power_off && milena lab broker-2 start",
    ],
)


def main(arguments: Sequence[str]) -> int:
    values = COMMAND.parse(arguments)
    if values.help:
        print(COMMAND.help())
        return 0
    given = dict(argument(text) for text in getattr(values, "argument=value"))
    folder = os.environ.get(LAB) if values.dir == DEFAULT_DIR else None
    if folder:
        return ask_alone(ClusterDir(folder), values.node, values.command, given)
    cluster = known(values.dir)
    node = SteeredNode(cluster, find(cluster, values.node))
    if values.command in OF_PROCESSES and given:
        raise UsageError(f"{values.command} takes no arguments")
    if values.command in OF_PROCESSES and values.command != "power_off":
        said = OF_PROCESSES[values.command](node)
        if said:
            print(said, file=sys.stderr)
        return 0
    if node.pid is not None and is_paused(node.pid):
        raise UserError(f"{node.name} is paused; `milena lab {node.name} resume` resumes it")
    if values.command == "power_off":
        node.power_off()
        return 0
    try:
        answer = node.lab_commands.call(values.command, **given)
    except NotListening:
        commands = [*OF_PROCESSES, *OF_NODES]
        if values.command in commands:
            raise
        raise UserError(
            f"no command {values.command!r}{nearest(values.command, commands)}; there are {', '.join(sorted(commands))}"
        ) from None
    return show(answer)


def show(answer: object) -> int:
    json.dump(answer, sys.stdout, indent=1)
    print()
    return 0


def ask_alone(folder: ClusterDir, name: str, command: str, given: dict[str, object]) -> int:
    """Send a command to a node without a supervisor, as in a container. Raises UserError."""
    if command in OF_PROCESSES and command != "power_off":
        raise UserError(f"{command}: {name} has no `milena up`; use the container engine instead")
    named = [f"{role}-{name}" for role in ("broker", "controller")] if name.isdigit() else [name]
    paths = [folder.socket(one) for one in named]
    commands = NodeCommands(next(filter(os.path.exists, paths), paths[0]))
    if command == "power_off":
        commands.end(command)
        return 0
    return show(commands.call(command, **given))


def find(cluster: ClusterDir, name: str) -> int:
    """Return the id of a node given by id or name. Raises UserError."""
    for entry in nodes_file.read(cluster.nodes):
        if name in (str(entry["id"]), nodes_file.name_of(entry)):
            return entry["id"]
    raise UserError(f"{cluster.path} has no node {name}")


def argument(text: str) -> tuple[str, object]:
    """Parse ``name=value``; the value is JSON if it parses as such. Raises UsageError."""
    try:
        name, value = key_value(text)
    except ValueError:
        raise UsageError(f"{text}: write it as argument=value, as in peer=1") from None
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
