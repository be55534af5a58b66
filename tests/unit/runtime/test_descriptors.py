"""Counting descriptors must not fail for want of one."""

from __future__ import annotations

import asyncio
import os
import resource

import pytest
from structlog.testing import CapturingLogger

from milena.lab.world.world import World, simulate
from milena.runtime import descriptors
from milena.runtime.descriptors import SAY_INTERVAL, DescriptorWatch


def test_a_process_without_any_descriptor_left_has_all_of_them_open() -> None:
    former = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_now - 1, 3), former[1]))
    try:
        assert descriptors.open_now() == descriptors.limit()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, former)


@pytest.mark.parametrize(("count", "said"), [(79, 0), (80, 2), (100, 2)])
def test_it_is_said_now_and_then_that_the_limit_is_near(count: int, said: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "open_now", lambda: count)
    monkeypatch.setattr(descriptors, "limit", lambda: 100)
    log = CapturingLogger()

    async def scenario(world: World) -> None:
        DescriptorWatch(world.machine("node").start().clock, log).start()
        await asyncio.sleep(SAY_INTERVAL * 1.5)

    simulate(scenario, seed=1)
    assert [(call.method_name, call.kwargs) for call in log.calls] == [
        ("warning", {"open": count, "limit": 100})
    ] * said
