"""Spark's worker must not take the end of its connection for the end of its rows."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from milena.pipeline.errors import PipelineError
from milena.pipeline.sink_rows import whole, worker_connections

Sockets = tuple[socket.socket, socket.socket]


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    """Spark's end, and the worker's, which the worker has open twice."""
    spark, worker = socket.socketpair()
    copy = os.dup(worker.fileno())
    with spark, worker:
        yield spark, worker
    os.close(copy)


def rows_while_spark_ends(spark: socket.socket) -> Iterator[int]:
    yield 1
    spark.close()


@pytest.mark.parametrize("unread", [b"", b"the end of the section"])
def test_all_rows_are_passed_on_while_spark_lives(sockets: Sockets, unread: bytes) -> None:
    sockets[0].sendall(unread)
    assert list(whole(iter([1, 2]))) == [1, 2]
    sockets[0].close()
    assert sockets[1].recv(100) == unread


def test_rows_that_end_with_sparks_connection_are_refused(sockets: Sockets) -> None:
    passed = whole(rows_while_spark_ends(sockets[0]))
    assert next(passed) == 1
    with pytest.raises(PipelineError, match="before it sent all rows"):
        next(passed)


def test_other_connections_do_not_matter() -> None:
    broker, own = socket.socketpair()
    with broker, own:
        assert own.fileno() not in worker_connections()
        assert list(whole(rows_while_spark_ends(broker))) == [1]
