"""The errors that the source, the sink and the jobs raise."""

from __future__ import annotations

from milena.runtime.logging import get_logger


class PipelineError(ValueError):
    """An error for the user. Its message names the option, the object in the tier, or the offset."""


class DataLoss(PipelineError):
    """Records that the query or job should read no longer exist (option ``failOnDataLoss``)."""


class TopicGone(DataLoss):
    """The topic was deleted, or deleted and created again, so none of the records that should be read exists."""


def recreated(topic: str, before: str, now: str) -> str:
    """Return the message for a topic that was deleted and created again. ``before``, ``now``: its former and its
    present id, as text."""
    return f"topic {topic} was deleted and created again: it had the id {before}, and has {now} now"


def loss(what: str, fail: bool) -> None:
    """Report that records do not exist any more: raise DataLoss if ``fail``, otherwise log a warning."""
    if fail:
        raise DataLoss(f"{what} (with failOnDataLoss=false the remaining records are read)")
    get_logger("pipeline").warning("data loss", what=what)
