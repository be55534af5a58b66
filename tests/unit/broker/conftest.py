"""Fixtures of the broker's tests."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
import structlog

from milena.runtime import logging
from tests.unit.broker.fixtures import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def logged() -> Iterator[StringIO]:
    """The log output; the level is INFO at first."""
    before = structlog.get_config()
    stream = StringIO()
    logging.configure(stream, human=False)
    yield stream
    structlog.configure(**before)
