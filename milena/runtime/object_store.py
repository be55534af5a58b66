"""Object stores, through fsspec."""

from __future__ import annotations

from collections.abc import Mapping


def connect(url: str, options: Mapping[str, object]) -> tuple[object, str]:
    """As ``Runtime.connect_store``."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url, **options)
    return system, str(path)
