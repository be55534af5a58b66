"""The adapter of Milena's own clients: its result if no broker answers."""

from __future__ import annotations

from typing import cast

import pytest

from milena.client.cluster import Cluster
from milena.lab.chaos import own_clients
from milena.node.links.outgoing import Unreachable
from milena.protocol.errors import ErrorCode, KafkaError


class Silent:
    """A cluster whose requests all fail with ``error``."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def metadata(self) -> object:
        raise self._error


@pytest.mark.parametrize(
    "error", [KafkaError(ErrorCode.REQUEST_TIMED_OUT, "silent"), Unreachable("connection refused")]
)
async def test_the_list_of_topics_is_unknown_if_no_broker_answers(error: Exception) -> None:
    assert await own_clients._Admin(cast(Cluster, Silent(error))).topics() is None
