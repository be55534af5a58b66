"""Log lines: JSON for machines, text for people."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator

import pytest
import structlog

from milena.runtime import logging
from milena.runtime.logging import get_logger


@pytest.fixture(autouse=True)
def unchanged_configuration() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_an_event_is_one_line_of_json() -> None:
    stream = io.StringIO()
    logging.configure(stream)
    get_logger("replication", node=3).info("leader changed", topic="a\nb", epoch=7)
    line = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert list(line)[:4] == ["timestamp", "level", "component", "event"]
    assert line | {"timestamp": ""} == {
        "timestamp": "",
        "level": "info",
        "component": "replication",
        "event": "leader changed",
        "node": 3,
        "topic": "a\nb",
        "epoch": 7,
    }


def test_an_event_reads_well_on_a_terminal() -> None:
    stream = io.StringIO()
    logging.configure(stream, human=True)
    get_logger("replication").warning("leader changed", topic="a", epoch=7)
    assert stream.getvalue().endswith(" replication: leader changed topic=a epoch=7\n")
    assert "warning" in stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_variable_selects_text_or_json(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILENA_LOG_FORMAT", form)
    stream = io.StringIO()
    logging.configure(stream)
    get_logger("x").info("event")
    assert "\x1b" not in stream.getvalue()
    assert (stream.getvalue()[0] == "{") == (form == "json")


def test_a_line_that_cannot_be_written_is_lost() -> None:
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", buffering=1)
    logging.configure(full)
    get_logger("x").info("event")
    with contextlib.suppress(OSError):
        full.close()  # what could not be written is still in its buffer


def test_an_exception_comes_with_its_trace() -> None:
    stream = io.StringIO()
    logging.configure(stream)
    try:
        raise ValueError("broken")
    except ValueError as error:
        get_logger("x").error("failed", exc_info=error)
    assert "ValueError: broken" in json.loads(stream.getvalue())["exception"]


def test_events_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    logging.configure(stream, level="warning")
    get_logger("x").info("quiet")
    get_logger("x").error("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="'loud' is not one of debug, info, warning, error, critical"):
        logging.configure(level="loud")


@pytest.mark.parametrize("human", [True, False])
def test_no_value_breaks_a_line_or_steers_a_terminal(human: bool) -> None:
    stream = io.StringIO()
    logging.configure(stream, human=human)
    get_logger("x").warning("refused", id="a\nb\x1b]0;title\x07\u202e\x9b2J" + "y" * 100_000)
    line = stream.getvalue().removesuffix("\n")
    assert line.replace(logging.COLOURS["warning"], "").replace(logging.RESET, "").isprintable()
    assert len(line) < 5000


@pytest.mark.parametrize("human", [True, False])
def test_the_text_of_an_exception_is_cut_and_escaped(human: bool) -> None:
    stream = io.StringIO()
    logging.configure(stream, human=human)
    try:
        raise ValueError("\x1b[2J" + "y" * 100_000)
    except ValueError as error:
        get_logger("x").error("failed", exc_info=error)
    text = stream.getvalue()
    assert "\x1b[2J" not in text
    assert len(text) < 20_000
