"""SIGTERM for commands that have something to finish before they end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine


async def until_terminated(work: Coroutine[object, object, None]) -> int:
    """Run ``work``, which SIGTERM cancels as Ctrl-C does. A second signal cancels what it does then. Return the exit
    code: 0, or 143 after SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    terminated = 0

    def terminate() -> None:
        nonlocal terminated
        terminated += 1
        task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        await work
    except asyncio.CancelledError:
        if not terminated:
            raise
        while terminated:
            terminated -= 1
            task.uncancel()
        return 128 + signal.SIGTERM
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    return 0
