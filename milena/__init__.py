"""Apache Kafka in Python."""

import os

DISTRIBUTION = "milena-kafka"
"""The distribution's name on the package index, where ``milena`` is another project."""
VERSION = "0.1.0"


def install_hint(extra: str) -> str:
    """Return the requirement of an optional extra, quoted for ``pip install``."""
    return f"'{DISTRIBUTION}[{extra}]'"


if "MILENA_PURE" in os.environ:
    from milena.form import choose

    choose(__path__, os.environ["MILENA_PURE"])
