"""For all tests: property tests are repeatable unless MILENA_EXPLORE says otherwise, and logging stays as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from tests.fixtures.properties import load_profile

load_profile()


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Commands that run in the test's own process silence the logs, which others look at."""
    configured, before = structlog.is_configured(), structlog.get_config()
    yield
    if configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()
