"""What `milena produce --transactional-id` does with its transaction after a signal."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from milena.client.transactional import State
from milena.commands.produce import end_interrupted
from milena.commands.termination import until_terminated
from milena.protocol.errors import ErrorCode, KafkaError


class Producing:
    """A producer in a state, whose commit and abort are noted."""

    transactional_id = "import\n1"

    def __init__(self, state: State, error: KafkaError | None = None) -> None:
        self.state = state
        self.error = error
        self.ended: list[str] = []

    async def _end(self, how: str) -> None:
        self.ended.append(how)
        if self.error is not None:
            raise self.error

    async def commit(self) -> None:
        await self._end("commit")

    async def abort(self) -> None:
        await self._end("abort")


@pytest.mark.parametrize(
    ("state", "ended", "said"),
    [
        (State.OPEN, ["abort"], "milena: interrupted; the transaction of import\\n1 is aborted\n"),
        (State.MUST_ABORT, ["abort"], "milena: interrupted; the transaction of import\\n1 is aborted\n"),
        (
            State.COMMITTING,
            ["commit"],
            "milena: interrupted; the transaction of import\\n1 is committed, as it had begun\n",
        ),
        (State.READY, [], ""),
        (State.FAILED, [], ""),
        (State.UNINITIALIZED, [], ""),
    ],
)
async def test_an_open_transaction_is_aborted_and_a_commit_is_finished(
    state: State, ended: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    producer: Any = Producing(state)
    await end_interrupted(producer)
    assert producer.ended == ended
    assert capsys.readouterr().err == said


async def test_a_transaction_that_cannot_be_aborted_is_named_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    producer: Any = Producing(State.OPEN, KafkaError(ErrorCode.PRODUCER_FENCED))
    await end_interrupted(producer)
    assert "is not ended, and times out: PRODUCER_FENCED" in capsys.readouterr().err


async def test_a_commit_without_an_answer_may_have_taken_effect(capsys: pytest.CaptureFixture[str]) -> None:
    """The broker may have committed the transaction: it is not said that it times out."""
    producer: Any = Producing(State.COMMITTING, KafkaError(ErrorCode.NETWORK_EXCEPTION))
    await end_interrupted(producer)
    assert capsys.readouterr().err == (
        "milena: interrupted; the transaction of import\\n1 is committed, or times out if the broker did not get the "
        "request: NETWORK_EXCEPTION\n"
    )


async def test_the_first_sigterm_cancels_the_work_and_the_second_what_it_does_then() -> None:
    reached: list[str] = []

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reached.append("first")
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                await asyncio.Event().wait()
            finally:
                reached.append("second")

    assert await until_terminated(work()) == 128 + signal.SIGTERM
    assert reached == ["first", "second"]


async def test_without_a_signal_the_exit_code_is_0() -> None:
    async def work() -> None:
        pass

    assert await until_terminated(work()) == 0
