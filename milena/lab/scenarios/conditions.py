"""The conditions that a scenario waits for: each returns what is missing as text, or None.

::

    leader: A | none        who leads, according to the controller and, if it runs, to the broker itself
    leaders: {u-1: A}       of other partitions
    isr: [A, B]             according to the controller; or {u-1: [A, B]}
    fenced: [B], active: [B]    registrations
    follows: {B: A}         B is a follower of A, and knows that
    log_end: {B: 11}, committed: {A: 10}
    registered: {B: $B1}    the broker has registered again since the broker epoch $B1
    listens: [B]            a starting broker accepts connections
    in_step: [A]            a broker has applied the metadata that the controller had when it was asked
    hits: {rule: 1}         a rule has this many hits
    moved: A                the log of its replica is in the directory to which it was moved
    knows: {B: 2}           a broker knows this many readable remote segments
    states: {C: Fetching}   the states of followers, in the documents' words
    metrics: {B: {remotelogcleanlostranges: 1}}    a broker's, of the topic with the one partition
    published: {COPY_SEGMENT_STARTED: 5}    at least this many of the partition's segments are in a state
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from milena.command_line.options import nearest
from milena.lab.scenarios.driver import CONTROLLER
from milena.lab.scenarios.reading import counted_states
from milena.lab.scenarios.script import THE_PARTITION, Fields, Partition, node_id, partition_of
from milena.lab.scenarios.stage import Condition, Stage
from milena.lab.scenarios.tables import TableError
from milena.node.links.probe import Prober
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState

NONE: Final = "none"
OF_TOPICS: Final = "kafka_server_brokertopicmetrics"
READABLE: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED.name


async def missing(stage: Stage, conditions: Fields) -> str | None:
    """Return the first condition that does not hold, or None. Raises TableError for an unknown condition."""
    for name, wanted in conditions.items():
        check = CONDITIONS.get(name)
        if check is None:
            known = list(CONDITIONS)
            raise TableError(f"no condition {name!r}{nearest(name, known)}; there are {', '.join(known)}")
        if (reason := await check(stage, wanted)) is not None:
            return reason
    return None


async def _leader(stage: Stage, wanted: str) -> str | None:
    return await _leads(stage, THE_PARTITION, wanted)


async def _leaders(stage: Stage, wanted: Mapping[str, str]) -> str | None:
    for partition, broker in wanted.items():
        if (reason := await _leads(stage, partition_of(partition), broker)) is not None:
            return reason
    return None


async def _leads(stage: Stage, partition: Partition, wanted: str) -> str | None:
    leader = (await stage.partition(partition))["leader"]
    if leader != (-1 if wanted == NONE else node_id(wanted)):
        return f"the leader is {leader}"
    if wanted in stage.up and (role := (await stage.replica(partition.on(wanted)))["role"]) != "leader":
        return f"{wanted} is {role}"
    return None


async def _isr(stage: Stage, wanted: list[str] | Mapping[str, list[str]]) -> str | None:
    for name, brokers in wanted.items() if isinstance(wanted, Mapping) else [(str(THE_PARTITION), wanted)]:
        isr = (await stage.partition(partition_of(name)))["isr"]
        if sorted(isr) != sorted(map(node_id, brokers)):
            return f"the ISR{'' if wanted is brokers else f' of {name}'} is {isr}"
    return None


async def _fenced(stage: Stage, wanted: list[str]) -> str | None:
    return await _registered(stage, wanted, fenced=True)


async def _active(stage: Stage, wanted: list[str]) -> str | None:
    return await _registered(stage, wanted, fenced=False)


async def _registered(stage: Stage, wanted: list[str], *, fenced: bool) -> str | None:
    for broker in wanted:
        found = await stage.registration(broker)
        if found is None or found["fenced"] is not fenced:
            return f"{broker} is {'unknown' if found is None else 'fenced' if found['fenced'] else 'active'}"
    return None


async def _follows(stage: Stage, wanted: Mapping[str, str]) -> str | None:
    for follower, leader in wanted.items():
        found = await stage.replica(follower)
        if found["role"] != "follower" or found["leader"] != node_id(leader):
            return f"{follower} is {found['role']}, its leader {found['leader']}"
    return None


async def _log_end(stage: Stage, wanted: Mapping[str, int]) -> str | None:
    for broker, offset in wanted.items():
        found = (await stage.replica(broker))["log_end_offset"]
        if found != offset:
            return f"{broker}'s log ends at {found}"
    return None


async def _committed(stage: Stage, wanted: Mapping[str, int]) -> str | None:
    for broker, offset in wanted.items():
        found = (await stage.replica(broker))["high_watermark"] - 1
        if found != offset:
            return f"{broker}'s last committed offset is {found}"
    return None


async def _registered_again(stage: Stage, wanted: Mapping[str, int]) -> str | None:
    for broker, epoch in wanted.items():
        found = await stage.registration(broker)
        if found is None or found["epoch"] == epoch:
            return f"{broker} has not registered again"
    return None


async def _listens(stage: Stage, wanted: list[str]) -> str | None:
    for broker in wanted:
        if (error := await Prober(stage.driver.runtime).error_of(*stage.driver.address(broker))) is not None:
            return f"{broker} does not listen: {os.strerror(error)}"
    return None


async def _in_step(stage: Stage, wanted: list[str]) -> str | None:
    for broker in wanted:
        known, there_is = [(await stage.command(node, "image"))["offset"] for node in (broker, CONTROLLER)]
        if known < there_is:
            return f"{broker} knows the metadata up to {known} of {there_is}"
    return None


async def _moved(stage: Stage, broker: str) -> str | None:
    target = str(stage.memory[f"{broker}.directory"])
    return None if (await stage.directories(broker))[target] else f"{broker}'s log is not in {target} yet"


async def _knows(stage: Stage, wanted: Mapping[str, int]) -> str | None:
    for broker, count in wanted.items():
        segments = await stage.of_replica(broker, "remote_segments")
        if (known := sum(segment["state"] == READABLE for segment in segments)) != count:
            return f"{broker} knows of {known} segments"
    return None


async def _published(stage: Stage, wanted: Mapping[str, int]) -> str | None:
    found = await counted_states(stage, stage.place(THE_PARTITION))
    short = [state for state, count in wanted.items() if found.get(state, 0) < count]
    return f"{', '.join(short)}: {found}" if short else None


async def _states(stage: Stage, wanted: Mapping[str, str]) -> str | None:
    for replica, state in wanted.items():
        found = ((await stage.replica(replica))["fetcher"] or {}).get("state")
        if found != state:
            return f"{replica} is in state {found}"
    return None


async def _metrics(stage: Stage, wanted: Mapping[str, Mapping[str, float]]) -> str | None:
    for broker, values in wanted.items():
        for name, value in values.items():
            found = await stage.command(broker, "metric", name=f"{OF_TOPICS}_{name}", topic=THE_PARTITION.topic)
            if found["value"] != value:
                return f"{name} of {broker} is {found['value']:g}"
    return None


async def _hits(stage: Stage, wanted: Mapping[str, int]) -> str | None:
    for name, count in wanted.items():
        node, number = stage.rule(name)
        rules = {rule["rule"]: rule for rule in await stage.command(node, "rules")}
        if (hits := rules[number]["hits"]) < count:
            return f"{name} was hit {hits} times"
    return None


CONDITIONS: Final[Mapping[str, Condition]] = {
    "leader": _leader,
    "leaders": _leaders,
    "isr": _isr,
    "fenced": _fenced,
    "active": _active,
    "follows": _follows,
    "log_end": _log_end,
    "committed": _committed,
    "registered": _registered_again,
    "listens": _listens,
    "in_step": _in_step,
    "hits": _hits,
    "moved": _moved,
    "knows": _knows,
    "states": _states,
    "metrics": _metrics,
    "published": _published,
}
