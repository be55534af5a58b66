"""What the pipeline tells its users."""

from __future__ import annotations

from milena.runtime.logging import get_logger


class PipelineError(ValueError):
    """A sentence that names the option, the object or the offset that it is about."""


class DataLoss(PipelineError):
    """Records that should have been read are not there any more (``failOnDataLoss``)."""


class TopicGone(DataLoss):
    """The topic was deleted, or deleted and made anew: nothing of it is left."""


def recreated(topic: str, before: str, now: str) -> str:
    """What is said of a topic that has another id (as text) than it had."""
    return f"topic {topic} was deleted and created again: it had the id {before}, and has {now} now"


def loss(what: str, fail: bool) -> None:
    """Raises DataLoss if ``fail``, else says so in the log."""
    if fail:
        raise DataLoss(f"{what} (failOnDataLoss=false reads what is there)")
    get_logger("pipeline").warning("data loss", what=what)
