"""Reasons for which a broker cannot join a cluster, with their messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast
from uuid import UUID

import pytest

from milena.broker.controller_link.controller_link import ControllerLink
from milena.broker.controller_link.lifecycle import Lifecycle, Registration
from milena.broker.server import cluster_of
from milena.config.values import ConfigError
from milena.lab.world.world import World, simulate
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import NodeId
from milena.runtime.clock import Clock
from milena.storage.manager.log_manager import LogManager

REGISTRATION = Registration(
    node_id=NodeId(7),
    cluster_id="own",
    incarnation=UUID(int=1),
    listeners=(),
    rack=None,
    log_dirs=(),
    previous_epoch=None,
)


@dataclass
class Directories:
    """The part of LogManager that is used."""

    cluster_id: str | None


@dataclass
class Refusing:
    """A link to a controller that rejects ``times`` requests, and then does not answer."""

    clock: Clock | None = None
    error: ErrorCode = ErrorCode.NONE
    times: int = 1
    address: str = "controller:9093"

    async def cluster_id(self) -> str:
        return "controllers"

    async def request(self, _key: object, *, timeout: float, **_fields: object) -> None:
        assert self.clock is not None
        if self.times:
            self.times -= 1
            raise KafkaError(self.error, "")
        await self.clock.sleep(timeout)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "")


@pytest.mark.parametrize(
    ("known", "wanted", "found"),
    [(None, None, "controllers"), ("own", None, "own"), ("own", "own", "own"), (None, "controllers", "controllers")],
)
async def test_a_broker_joins_the_cluster_of_its_directories_or_of_its_controller(
    known: str | None, wanted: str | None, found: str
) -> None:
    assert await cluster_of(cast(LogManager, Directories(known)), cast(ControllerLink, Refusing()), wanted) == found


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (None, "is wanted, but the controller at controller:9093 leads cluster controllers"),
        ("own", "is wanted, but the log directories belong to cluster own"),
    ],
)
async def test_a_broker_joins_only_the_required_cluster(known: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=f"--cluster-id or CLUSTER_ID {said}"):
        await cluster_of(cast(LogManager, Directories(known)), cast(ControllerLink, Refusing()), "wanted")


@pytest.mark.parametrize(
    ("error", "times", "said"),
    [
        (
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            1,
            "INCONSISTENT_CLUSTER_ID "
            "(the log directories belong to cluster own, and that controller leads another one)",
        ),
        (
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            100,
            "DUPLICATE_BROKER_REGISTRATION (another broker runs with node.id=7)",
        ),
        (
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            1,
            "DUPLICATE_BROKER_REGISTRATION (another broker runs with node.id=7)",
        ),
        (ErrorCode.NONE, 0, "REQUEST_TIMED_OUT"),
    ],
)
def test_a_rejected_registration_has_a_reason(error: ErrorCode, times: int, said: str) -> None:
    ended: list[str] = []

    async def steps(world: World) -> None:
        runtime = world.machine("broker").start()
        lifecycle = Lifecycle(
            replace(runtime, fatal=lambda reason, _error: ended.append(reason)),
            cast(ControllerLink, Refusing(runtime.clock, error, times)),
            REGISTRATION,
            metadata_offset=lambda: 0,
            metadata_ahead=lambda: False,
            metadata_current_at=lambda: 0.0,
            heartbeat_interval=2.0,
            session_timeout=9.0,
            registration_timeout=2.0,
            failure_timeout=30.0,
        )
        lifecycle.may_stop.set()
        tasks = runtime.new_tasks("test")
        lifecycle.start(tasks)
        await runtime.clock.sleep(5.0)
        await tasks.stop()

    simulate(steps, seed=1)
    assert ended == [f"broker 7 could not register with controller:9093: {said}"]
