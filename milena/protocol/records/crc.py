"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots.

The ``crc32c`` distribution reads any buffer without copying it, at memory speed. Its package
costs 40 ms to import (command line, metadata), its extension 1 ms, so the extension is loaded alone.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["crc32c"]


class Checksum(Protocol):
    """Takes bytes, and the checksum of the bytes before them; gives a uint32."""

    def __call__(self, data: Buffer, value: int = 0) -> int: ...


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", folders) if folders is not None else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c as through_package

        return cast(Checksum, through_package)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Checksum, module.crc32c)


crc32c: Checksum = _load()
"""The checksum of ``data``, continuing from ``value`` (the checksum of what came before), as uint32."""
