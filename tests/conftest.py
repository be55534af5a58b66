"""For all tests: property tests are repeatable unless MILENA_EXPLORE says otherwise."""

from __future__ import annotations

from tests.fixtures.properties import load_profile

load_profile()
