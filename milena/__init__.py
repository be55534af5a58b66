"""Kafka, translated into Python."""

import os

DISTRIBUTION = "milena-kafka"
"""The name on the package index. ``milena`` there is somebody else's package."""
VERSION = "0.1.0"


def install_hint(extra: str) -> str:
    """What to install for an optional part, as one types it behind ``pip install``."""
    return f"'{DISTRIBUTION}[{extra}]'"


if "MILENA_PURE" in os.environ:
    from milena.form import choose

    choose(__path__, os.environ["MILENA_PURE"])
