"""What the pipeline tells its users."""

from __future__ import annotations

from milena.runtime.logging import get_logger


class PipelineError(ValueError):
    """A sentence that names the option, the object or the offset that it is about."""


class DataLoss(PipelineError):
    """Records that should have been read are not there any more (``failOnDataLoss``)."""


def loss(what: str, fail: bool) -> None:
    """Raises DataLoss if ``fail``, else says so in the log."""
    if fail:
        raise DataLoss(f"{what} (failOnDataLoss=false reads what is there)")
    get_logger("pipeline").warning("data loss", what=what)
