"""`milena lab`: send a command to a node, or control its process."""

from __future__ import annotations

import json
import os
import sys

from milena.command_line.errors import UsageError, UserError
from milena.command_line.options import CommandLine, Option, Positional, key_value, nearest
from milena.node.serving.lab_catalog import CATALOG, GROUPS
from milena.steering.caller import NodeCommands, NotListening
from milena.steering.nodes import SteeredNode
from milena.up import nodes_file
from milena.up.detached import known
from milena.up.layout import DEFAULT_DIR, LAB, ClusterDir
from milena.up.processes import is_paused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milena.node.serving.lab_descriptions import Argument, LabCommandDescription


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


def _about() -> str:
    """Return what the command does, with all commands by group."""
    lines = ["Control one node of a test cluster. `milena lab NODE COMMAND --help` describes a command."]
    width = max(map(len, CATALOG)) + 2
    for group, text in GROUPS.items():
        lines += ["", f"{group} {text}:"]
        lines += [f"  {one.name:<{width}}{one.summary}" for one in CATALOG.values() if one.group == group]
    return "\n".join(lines)


COMMAND = CommandLine(
    "lab",
    _about(),
    [Option("--dir", "the cluster's directory", "DIR", default=DEFAULT_DIR)],
    [
        Positional("NODE", "a node's id or name, as `milena status` shows them"),
        Positional("COMMAND", "what to do; all but those of the process need `milena up --lab`"),
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


def help_of(arguments: Sequence[str]) -> str:
    """Return the help of the lab command in ``arguments``, or of all. Raises UsageError."""
    words = [word for word in arguments if word not in ("-h", "--help")]
    try:
        name = str(COMMAND.parse(words).command)
    except UsageError:
        return COMMAND.help()
    described = CATALOG.get(name)
    if described is None:
        raise UsageError(f"no command {name!r}{nearest(name, list(CATALOG))}; `milena lab --help` lists them")
    return help_text(described)


def help_text(described: LabCommandDescription) -> str:
    """Return the text of `milena lab NODE COMMAND --help`."""
    arguments = " [ARGUMENT=VALUE...]" if described.arguments else ""
    rows = [(f"{one.name}=", _argument_text(one)) for one in described.arguments]
    width = max((len(left) for left, _ in rows), default=0) + 2
    lines = [f"usage: milena lab NODE {described.name}{arguments}", "", described.summary]
    if rows:
        lines += ["", *(f"  {left:<{width}}{right}" for left, right in rows)]
    lines += ["", f"Returns {described.returns}."]
    if described.undo:
        lines += [f"To undo it: {described.undo}."]
    if described.nodes != ("broker", "controller"):
        lines += [f"Only of {' and '.join(described.nodes)}s."]
    return "\n".join(lines)


def _argument_text(one: Argument) -> str:
    choices = f", one of {', '.join(filter(None, one.choices))}" if one.choices else ""
    default = "" if one.default in (None, "") or one.required else f" (default: {one.default})"
    required = " (required)" if one.required else ""
    return f"{one.help}; {' or '.join(one.kinds)}{choices}{default}{required}"


def main(arguments: Sequence[str]) -> int:
    values = COMMAND.parse(arguments)
    if values.help:
        print(help_of(arguments))
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
        if values.command in CATALOG:
            raise
        raise UserError(
            f"no command {values.command!r}{nearest(values.command, list(CATALOG))}; there are "
            f"{', '.join(sorted(CATALOG))}"
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
