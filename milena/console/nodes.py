"""Lab commands of nodes and their processes, and fault rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal

from anyio import to_thread
from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from milena.console.context import Context, Shared, not_found
from milena.console.lab_place import LabNode
from milena.console.node_link import CommandTimeout, NodeAway, call_once
from milena.console.state_types import RuleState, answered
from milena.node.serving.lab_catalog import CATALOG, RULES
from milena.node.serving.lab_descriptions import Argument, LabCommandDescription, shown
from milena.steering.command import OF_PROCESSES
from milena.steering.nodes import SteeredNode

router = APIRouter()

COMMAND_SECONDS: Final = 120.0
"""The limit of a command's answer: work in the tier may take long."""
LONGEST_WAIT: Final = 60.0
"""Seconds of one request that waits for hits of a rule. The client asks again."""
NAME: Final = Path(description="a node's name or id, as in GET /api/nodes")


def node_named(context: Context, name: str) -> LabNode:
    """Return a node by name or id. Raises HTTPException 404."""
    nodes = context.place.nodes()
    controlled = {known: node for known, node in nodes.items() if isinstance(node, LabNode)}
    for known, node in controlled.items():
        if name in (known, known.rpartition("-")[2]):
            return node
    raise not_found(f"no node {name!r}; there are {', '.join(controlled) or 'none that can be controlled'}")


def command_named(name: str, node: LabNode | None = None) -> LabCommandDescription:
    """Return a command's description. Raises HTTPException 404 if there is no such command of the node."""
    known = {one.name: one for one in CATALOG.values() if node is None or has(node, one)}
    described = known.get(name)
    if described is None:
        near = get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise not_found(f"no command {name!r}{hint}; there are {', '.join(sorted(known))}")
    return described


async def run_command(context: Context, name: str, command: str, given: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Execute a command of a node or its process, and return its result. Raises HTTPException, Misused, CommandError,
    NodeAway, UserError."""
    node = node_named(context, name)
    described = command_named(command, node)
    described.check(given)
    if described.of_process:
        result = await _run_of_process(context, node, command)
    elif node.state == "paused":
        raise HTTPException(409, f"{node.name} is paused; POST /api/nodes/{node.name}/resume resumes it")
    else:
        result = await call_once(node.socket, node.name, command, COMMAND_SECONDS, **given)
    if described.changes:
        context.model.feed.add("action", f"{node.name}: {_as_text(command, given)}", node=node.name)
        context.watch.soon()
    return result


async def _run_of_process(context: Context, node: LabNode, command: str) -> dict[str, object]:
    if context.directory is None:
        raise HTTPException(409, f"{command}: {node.name} has no `milena up`; use the container engine instead")
    steered = SteeredNode(context.directory, node.entry["id"])
    said = await to_thread.run_sync(OF_PROCESSES[command], steered)
    return {"pid": steered.pid} | ({"message": said} if said else {})


def _as_text(command: str, given: dict[str, Any]) -> str:
    return " ".join([command, *(f"{name}={shown(value)}" for name, value in given.items())])


# -- commands


@router.get("/api/commands", tags=["nodes"])
async def commands(context: Shared) -> dict[str, dict[str, Any]]:
    """The commands of each node, with their arguments, what they return, and how to undo them."""
    nodes = {name: node for name, node in context.place.nodes().items() if isinstance(node, LabNode)}
    possible = [one for one in CATALOG.values() if context.directory is not None or not one.of_process]
    return {
        name: {"commands": {one.name: described_as_json(one) for one in possible if has(node, one)}}
        for name, node in nodes.items()
    }


def has(node: LabNode, command: LabCommandDescription) -> bool:
    """Whether a node has a command."""
    return bool(set(node.entry["roles"]) & set(command.nodes))


def described_as_json(command: LabCommandDescription) -> dict[str, Any]:
    """Return a command's description for GET /api/commands."""
    arguments = [
        {
            "name": one.name,
            "type": " or ".join(one.kinds),
            "required": one.required,
            "default": None if one.required else one.default,
            "values": list(one.choices) or None,
            "about": one.help,
        }
        for one in command.arguments
    ]
    described = {"about": command.summary, "arguments": arguments, "returns": command.returns, "undo": command.undo}
    return described | {"group": command.group, "changes": command.changes, "of_process": command.of_process}


def schema_of(argument: Argument) -> dict[str, Any]:
    """Return the JSON schema of an argument."""
    schema: dict[str, Any] = {"description": argument.help, "type": list(argument.kinds)}
    if len(argument.kinds) == 1:
        schema["type"] = argument.kinds[0]
    if "array" in argument.kinds:
        schema["items"] = {}
    if argument.choices:
        schema["enum"] = list(argument.choices)
    if not argument.required and argument.default is not None:
        schema["default"] = argument.default
    return schema


def body_schema(arguments: dict[str, Argument], required: list[str]) -> dict[str, Any]:
    """Return the part of OpenAPI that describes a body with these arguments."""
    schema = {
        "type": "object",
        "properties": {name: schema_of(one) for name, one in arguments.items()},
        "required": required,
        "additionalProperties": False,
    }
    return {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": bool(required)}}


async def object_in(request: Request) -> dict[str, Any]:
    """Return the body, an object of JSON; an empty one if there is no body. Raises HTTPException 400."""
    body = await request.body()
    try:
        given = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise HTTPException(400, "the body must be an object of JSON with the command's arguments, or empty")
    return given


Given = Annotated[dict[str, Any], Depends(object_in)]


def _endpoint(command: str) -> Callable[..., Coroutine[Any, Any, dict[str, Any]]]:
    async def endpoint(context: Shared, name: Annotated[str, NAME], given: Given) -> dict[str, Any]:
        return {"ok": await run_command(context, name, command, given)}

    return endpoint


for _command in CATALOG.values():
    _arguments = {one.name: one for one in _command.arguments}
    router.add_api_route(
        f"/api/nodes/{{name}}/{_command.name}",
        _endpoint(_command.name),
        methods=["POST"],
        operation_id=_command.name,
        summary=_command.summary,
        description=f"Returns {_command.returns}." + (f" To undo it: {_command.undo}." if _command.undo else ""),
        tags=[_command.group],
        openapi_extra=body_schema(_arguments, [one.name for one in _command.arguments if one.required]),
    )


@router.post("/api/nodes/{name}/{command}", include_in_schema=False)
async def unknown_command(context: Shared, name: str, command: str) -> None:
    """Say which nodes and commands there are."""
    command_named(command, node_named(context, name))


# -- rules

RuleAction = Literal["hold", "delay", "drop", "disconnect", "fail", "duplicate", "trace"]
_OF_RULES: Final = {
    argument.name: argument
    for one in CATALOG.values()
    if one.group == RULES and one.name in RuleAction.__args__  # type: ignore[attr-defined]
    for argument in one.arguments
}


class NewRule(BaseModel):
    """A fault rule: the node, the action, and the arguments of the command with the action's name."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra=lambda schema: schema["properties"].update(
            {name: schema_of(one) for name, one in _OF_RULES.items() if name != "node"}
        ),
    )
    node: str = Field(description="the name or id of the node that applies the rule; `sender` is the rule's `node`")
    action: RuleAction
    sender: int | None = Field(default=None, description="the id of the node that sends the request")


@router.get(
    "/api/rules",
    tags=[RULES],
    response_model=None,
    responses=answered(dict[str, list[RuleState]], "The rules by node"),
)
async def rules(context: Shared) -> dict[str, list[dict[str, Any]]]:
    """The rules of all nodes that answer, asked for now, by node."""
    await context.watch.fresh()
    return context.model.rules


@router.post("/api/rules", tags=[RULES])
async def add_rule(context: Shared, rule: NewRule) -> dict[str, Any]:
    """Add a rule to a node, and return its number."""
    given = dict(rule.model_extra or {})
    if rule.sender is not None:
        given["node"] = rule.sender
    added = await run_command(context, rule.node, rule.action, given)
    return {"ok": {"node": node_named(context, rule.node).name, "rule": added["rule"]}}


@router.get("/api/rules/{name}/{rule}/wait", tags=[RULES])
async def wait_for_rule(
    context: Shared,
    name: Annotated[str, NAME],
    rule: int,
    hits: Annotated[int, Query(ge=1, description="the number of hits")] = 1,
    seconds: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="the longest time to wait")] = 30.0,
) -> dict[str, Any]:
    """Wait until a rule has this many hits, and return it. 408: it did not within the time; ask again."""
    try:
        found: dict[str, Any] = await run_command(
            context, name, "wait", {"rule": rule, "hits": hits, "seconds": seconds}
        )
    except CommandTimeout:
        raise HTTPException(408, f"rule {rule} does not have {hits} hits after {seconds:g} s; ask again") from None
    return found


@router.delete("/api/rules/{name}/{rule}", tags=[RULES])
async def release_rule(context: Shared, name: Annotated[str, NAME], rule: int) -> dict[str, Any]:
    """Release what a rule holds, and remove it."""
    return {"ok": await run_command(context, name, "release", {"rule": rule})}


@router.delete("/api/rules/{name}", tags=[RULES])
async def release_rules_of_node(context: Shared, name: Annotated[str, NAME]) -> dict[str, Any]:
    """Release and remove all rules of a node."""
    return {"ok": await run_command(context, name, "clear", {})}


@router.delete("/api/rules", tags=[RULES])
async def release_all_rules(context: Shared) -> dict[str, Any]:
    """Release and remove the rules of all nodes that answer."""
    released = {}
    for name, node in context.place.nodes().items():
        if isinstance(node, LabNode) and node.is_answering():
            with suppress(NodeAway):  # it has just ended, and its rules with it
                released[name] = await run_command(context, name, "clear", {})
    return {"ok": released}
