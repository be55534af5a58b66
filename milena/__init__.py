"""Kafka, translated into Python."""

DISTRIBUTION = "milena-kafka"
"""The name on the package index. ``milena`` there is somebody else's package."""


def install_hint(extra: str) -> str:
    """What to install for an optional part, as one types it behind ``pip install``."""
    return f"'{DISTRIBUTION}[{extra}]'"
