"""The list of scenarios."""

from __future__ import annotations

import asyncio

from milena.console.scenarios import ONE_AT_A_TIME, scenarios


async def test_scenarios_are_listed_while_one_runs() -> None:
    async with ONE_AT_A_TIME:
        listed = await asyncio.wait_for(scenarios(), timeout=30)
    assert {
        "name": "kip405_1",
        "group": "KIP-405, tiered storage: followers, elections and the remote tier",
    }.items() <= (listed[0].items())
    assert all("simulation" in one["worlds"] for one in listed)
