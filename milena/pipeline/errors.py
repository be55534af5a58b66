"""What the pipeline tells its users."""

from __future__ import annotations


class PipelineError(ValueError):
    """A sentence that names the option, the object or the offset that it is about."""


class DataLoss(PipelineError):
    """Records that should have been read are not there any more (``failOnDataLoss``)."""
