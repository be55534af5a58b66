"""Conditions that a scenario waits for, and its named values, on a fake cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from milena.lab.scenarios.conditions import missing
from milena.lab.scenarios.script import Script
from milena.lab.scenarios.stage import ScenarioFailed, Stage
from milena.lab.scenarios.tables import TableError
from milena.lab.world.world import World, simulate
from milena.node.serving.lab_commands import LabCommandError
from milena.runtime.context import Runtime


class FakeDriver:
    """A fake of ``lab.scenarios.driver.Driver`` with two brokers; answers commands by node and name."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.partition: dict[str, Any] = {"leader": 1, "isr": [1, 2], "leader_epoch": 3, "partition_epoch": 4}
        self.brokers: dict[str, Any] = {"1": {"epoch": 10, "fenced": False}, "2": {"epoch": 12, "fenced": True}}
        self.replicas: dict[str, Any] = {
            "A": {"role": "leader", "leader": 1, "log_end_offset": 5, "high_watermark": 3},
            "B": {"role": "follower", "leader": 1, "log_end_offset": 3, "high_watermark": 2},
        }
        self.known = {"A": 7, "B": 6, "controller": 7}
        self.rules = [{"rule": 1, "hits": 2}]

    async def command(self, node: str, command: str, /, **arguments: Any) -> Any:
        match command:
            case "partitions":
                return {"t-0": self.partition}
            case "brokers":
                return self.brokers
            case "image":
                return {"offset": self.known[node]}
            case "rules":
                return self.rules
            case "remote_segments":
                return [{"state": "COPY_SEGMENT_FINISHED"}, {"state": "COPY_SEGMENT_STARTED"}]
            case _:
                assert command == "describe_partition"
                return self.replicas[node]


def on_stage(run: Callable[[Stage, FakeDriver], Awaitable[None]]) -> None:
    async def play(world: World) -> None:
        driver = FakeDriver(world.machine("scenario").start())
        script = Script("some", "plain", "Some scenario", ("A", "B"), [], values={"n": 15})
        stage = Stage(script, driver)  # type: ignore[arg-type]
        stage.up = {"A", "B"}
        await run(stage, driver)

    simulate(play, seed=0)


@pytest.mark.parametrize(
    "conditions",
    [
        {},
        {"leader": "A"},
        {"leaders": {"t-0": "A"}},
        {"isr": ["B", "A"]},
        {"isr": {"t-0": ["A", "B"]}},
        {"knows": {"A": 1}},
        {"active": ["A"], "fenced": ["B"]},
        {"follows": {"B": "A"}},
        {"log_end": {"A": 5, "B": 3}},
        {"committed": {"A": 2}},
        {"registered": {"B": 11}},
        {"in_step": ["A"]},
        {"hits": {"held": 2}},
    ],
)
def test_nothing_is_missing_if_the_conditions_hold(conditions: dict[str, Any]) -> None:
    async def run(stage: Stage, driver: FakeDriver) -> None:
        stage.rules["held"] = "A", 1
        assert await missing(stage, conditions) is None

    on_stage(run)


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"leader": "B"}, "the leader is 1"),
        ({"leader": "none"}, "the leader is 1"),
        ({"leaders": {"t-0": "B"}}, "the leader is 1"),
        ({"isr": ["A"]}, "the ISR is [1, 2]"),
        ({"isr": {"t-0": ["B"]}}, "the ISR of t-0 is [1, 2]"),
        ({"knows": {"B": 2}}, "B knows of 1 segments"),
        ({"fenced": ["A"]}, "A is active"),
        ({"active": ["B"]}, "B is fenced"),
        ({"active": ["C"]}, "C is unknown"),
        ({"follows": {"A": "B"}}, "A is leader, its leader 1"),
        ({"log_end": {"A": 5, "B": 5}}, "B's log ends at 3"),
        ({"committed": {"A": 3}}, "A's last committed offset is 2"),
        ({"registered": {"B": 12}}, "B has not registered again"),
        ({"in_step": ["A", "B"]}, "B knows the metadata up to 6 of 7"),
        ({"hits": {"held": 3}}, "held was hit 2 times"),
        ({"leader": "A", "isr": ["A"]}, "the ISR is [1, 2]"),
    ],
)
def test_a_condition_that_does_not_hold_is_reported_as_missing(conditions: dict[str, Any], said: str) -> None:
    async def run(stage: Stage, driver: FakeDriver) -> None:
        stage.rules["held"] = "A", 1
        assert await missing(stage, conditions) == said

    on_stage(run)


def test_a_leader_must_report_its_role_as_leader() -> None:
    async def run(stage: Stage, driver: FakeDriver) -> None:
        driver.replicas["A"]["role"] = "follower"
        assert await missing(stage, {"leader": "A"}) == "A is follower"
        stage.up.discard("A")
        assert await missing(stage, {"leader": "A"}) is None

    on_stage(run)


def test_an_unknown_condition_is_an_error() -> None:
    async def run(stage: Stage, driver: FakeDriver) -> None:
        with pytest.raises(TableError, match="no condition 'leads'"):
            await missing(stage, {"leads": "A"})

    on_stage(run)


def test_a_timeout_reports_the_missing_condition() -> None:
    async def run(stage: Stage, driver: FakeDriver) -> None:
        with pytest.raises(ScenarioFailed, match="B to lead: after 30 s the leader is 1"):
            await stage.until("B to lead", lambda: missing(stage, {"leader": "B"}))

    on_stage(run)


def test_a_condition_whose_command_fails_is_retried() -> None:
    async def run(stage: Stage, driver: FakeDriver) -> None:
        asked = 0

        async def condition() -> str | None:
            nonlocal asked
            asked += 1
            if asked < 3:
                raise LabCommandError("connection refused")
            return None

        await stage.until("an answer", condition)
        assert asked == 3

    on_stage(run)


def test_names_are_replaced_by_their_values_and_may_have_plus_or_minus_one() -> None:
    async def run(stage: Stage, driver: FakeDriver) -> None:
        stage.memory["B1"] = 9
        found = await stage.resolve(
            {"list": ["$B1", "$B1 + 1", "$B1 - 1"], "n": "$n", "epoch": "$A.epoch", "of": "$leader_epoch", "text": "n"}
        )
        assert found == {"list": [9, 10, 8], "n": 15, "epoch": 10, "of": 3, "text": "n"}

    on_stage(run)


@pytest.mark.parametrize("name", ["$B1", "$C.epoch", "$A.rack", "$"])
def test_an_unknown_name_fails_the_scenario(name: str) -> None:
    async def run(stage: Stage, driver: FakeDriver) -> None:
        with pytest.raises(ScenarioFailed, match="there is no value"):
            await stage.resolve(name)

    on_stage(run)
