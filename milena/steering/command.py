"""`milena lab`: ask something of one node, or do something to its process."""

from __future__ import annotations

import json
import os
import sys

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, key_value, nearest
from milena.steering.caller import NobodyListens, NodeVerbs
from milena.steering.nodes import SteeredNode
from milena.up import nodes_file
from milena.up.detached import known
from milena.up.layout import DEFAULT_DIR, LAB, ClusterDir
from milena.up.processes import is_paused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def start(node: SteeredNode) -> str | None:
    """Start it. What to tell of a node that does not serve yet."""
    return None if node.start() else f"{node.name} runs and does not serve yet: `milena logs {node.name}` says more"


def wipe(node: SteeredNode) -> str | None:
    """Empty its log directories. What to tell of those that were not there."""
    missing = node.wipe()
    return f"{node.name}: there was nothing to wipe, {', '.join(missing)} is not there" if missing else None


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
    "remote_segments", "metric", "fetchers", "brokers", "partitions", "fail_disk",
    "fill_disk", "slow_disk", "jump_clock", "break_tier", "lost_objects",
    "troubles",
)  # fmt: skip
"""What brokers and controllers can be asked, for those who ask where no node tells it."""

COMMAND = CommandLine(
    "lab",
    "Steer one node of a cluster. What can be done to any node's process:\n"
    "  stop      in order                         start   again, under its `milena up`\n"
    "  kill      kill -9: the page cache stays    wipe    empty its log directories while it is down\n"
    "  pause     SIGSTOP                          resume  SIGCONT\n"
    "What a node of `milena up --lab` can be asked (`help` lists all):\n"
    "  power_off                                  end, with files as a loss of power leaves them\n"
    "  fail_disk, fill_disk path=                 let a log directory fail, or be full, until the node starts again\n"
    "  slow_disk path= ms=                        let each sync take so much longer; 0: no longer\n"
    "  jump_clock ms=                             set the wall clock ahead, or behind if negative; 0: right again\n"
    "  break_tier away=true delay_ms= lose=0.1    let a broker's tier fail, be slow, lose a share of new segments;\n"
    "                                             without arguments it works again. lost_objects lists what is lost\n"
    "  troubles                                   its wall clock, and what was made to fail or to wait so far\n"
    "  hold, drop, delay, disconnect, fail        catch requests: api=, peer=, node=, topic=, partition=, group=,\n"
    "                                             transactional_id=, every=N (each n-th),\n"
    "                                             probability=0.1, count=, ms=, error=,\n"
    "                                             side=request or response; answers with the\n"
    "                                             rule's number. fail with topic= refuses only its\n"
    "                                             partitions, of Produce, Fetch, ListOffsets,\n"
    "                                             OffsetCommit, OffsetForLeaderEpoch and\n"
    "                                             DeleteRecords\n"
    "  trace, traced                              note requests with their answers, and show them\n"
    "  release, wait, rules, clear                let go what a rule holds, wait for its hits, look at rules\n"
    "  cut, heal, links                           let nothing through from and to peer=, direction=in, out or both\n"
    "  describe_partition, read_log, roll, retention, metric, fetchers, image of brokers\n"
    "  brokers, partitions, image                                            of the controller\n"
    "A peer is a node's id or the beginning of a client id.",
    [Option("--dir", "the cluster's directory", "DIR", default=DEFAULT_DIR)],
    [
        Positional("NODE", "a node's id or name, as `milena status` shows them"),
        Positional("VERB", "what to do"),
        Positional("ARGUMENT=VALUE", "arguments of the verb", many=True),
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
        return ask_alone(ClusterDir(folder), values.node, values.verb, given)
    cluster = known(values.dir)
    node = SteeredNode(cluster, find(cluster, values.node))
    if values.verb in OF_PROCESSES and given:
        raise UsageError(f"{values.verb} takes no arguments")
    if values.verb in OF_PROCESSES and values.verb != "power_off":
        said = OF_PROCESSES[values.verb](node)
        if said:
            print(said, file=sys.stderr)
        return 0
    if node.pid is not None and is_paused(node.pid):
        raise UserError(f"{node.name} is paused and answers nobody; `milena lab {node.name} resume` wakes it")
    if values.verb == "power_off":
        node.power_off()
        return 0
    try:
        answer = node.verbs.call(values.verb, **given)
    except NobodyListens:
        verbs = [*OF_PROCESSES, *OF_NODES]
        if values.verb in verbs:
            raise
        raise UserError(
            f"no verb {values.verb!r}{nearest(values.verb, verbs)}; there are {', '.join(sorted(verbs))}"
        ) from None
    return show(answer)


def show(answer: object) -> int:
    json.dump(answer, sys.stdout, indent=1)
    print()
    return 0


def ask_alone(folder: ClusterDir, name: str, verb: str, given: dict[str, object]) -> int:
    """Ask a node that has no supervisor, as in a container. Raises UserError."""
    if verb in OF_PROCESSES and verb != "power_off":
        raise UserError(f"{verb}: {name} has no `milena up` that could do it; who runs the container can")
    named = [f"{role}-{name}" for role in ("broker", "controller")] if name.isdigit() else [name]
    paths = [folder.socket(one) for one in named]
    verbs = NodeVerbs(next(filter(os.path.exists, paths), paths[0]))
    if verb == "power_off":
        verbs.end(verb)
        return 0
    return show(verbs.call(verb, **given))


def find(cluster: ClusterDir, name: str) -> int:
    """The id of a node that is called by its id or its name. Raises UserError."""
    for entry in nodes_file.read(cluster.nodes):
        if name in (str(entry["id"]), f"{entry['roles'][0]}-{entry['id']}"):
            return entry["id"]
    raise UserError(f"{cluster.path} has no node {name}")


def argument(text: str) -> tuple[str, object]:
    """``name=value``, the value as JSON where it is some. Raises UsageError."""
    try:
        name, value = key_value(text)
    except ValueError:
        raise UsageError(f"{text}: write it as argument=value, as in peer=1") from None
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
