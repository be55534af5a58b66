"""Import a library without the optional extras that it would load.

structlog imports rich and kio imports hypothesis if they are installed; a node uses neither, and each costs more time
and memory than the node itself. asyncio imports ssl for its transports, which the network adapter does not use: 5 MiB
and 5 ms (docs/performance.md). A module that uses TLS imports ssl itself, later.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = ("rich", "colorama", "better_exceptions", "hypothesis", "twisted", "greenlet", "ssl")


@contextmanager
def lean_import() -> Iterator[None]:
    """Hide the extras that are not loaded yet from imports inside the block."""
    hidden = [name for name in EXTRAS if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # makes Python raise ModuleNotFoundError
    try:
        yield
    finally:
        for name in hidden:
            if name in sys.modules and sys.modules[name] is None:
                del sys.modules[name]
