"""A controller whose process stood still for longer than its brokers' sessions."""

from __future__ import annotations

import pytest

from milena.lab.world.world import simulate
from tests.unit.controller.simulated import Site, scenario

SESSION = 9.0


@pytest.mark.parametrize("late", [0.0, 0.05, 0.5])
def test_heartbeats_that_waited_in_its_sockets_are_read_before_it_fences(late: float) -> None:
    """Connections that wait to be accepted are read some turns of the loop after the timers that are due."""

    async def steps(site: Site) -> None:
        epoch = await site.register(1)
        await site.create("t")
        clock = site.client.clock
        site.machine.pause()
        await clock.sleep(3 * SESSION)
        site.machine.resume()
        await clock.sleep(late)
        assert not (await site.beat(1, epoch)).is_fenced
        assert site.controller.state.image.topics["t"].partitions[0].leader_epoch == 0
        await clock.sleep(2 * SESSION)
        assert site.controller.state.image.brokers[1].fenced, "nothing is heard of it any more"

    simulate(scenario(steps), seed=1)


def test_a_second_pause_in_the_wait_after_the_first_ends_no_session() -> None:
    async def steps(site: Site) -> None:
        epoch = await site.register(1)
        await site.create("t")
        clock = site.client.clock
        for wait in (0.5, 0.05):
            site.machine.pause()
            await clock.sleep(3 * SESSION)
            site.machine.resume()
            await clock.sleep(wait)
        assert not (await site.beat(1, epoch)).is_fenced
        assert site.controller.state.image.topics["t"].partitions[0].leader_epoch == 0

    simulate(scenario(steps), seed=1)
