"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots.

The ``crc32c`` distribution reads any buffer without a copy, at memory speed. Importing its package takes 40 ms (command
line, metadata), importing its extension module 1 ms, so only the extension is loaded.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["crc32c"]


class Checksum(Protocol):
    """Returns the checksum (uint32) of ``data``, continued from ``value``, the checksum of the bytes before."""

    def __call__(self, data: Buffer, value: int = 0) -> int: ...


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", folders) if folders is not None else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c as from_package

        return cast(Checksum, from_package)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Checksum, module.crc32c)


crc32c: Checksum = _load()
"""The checksum of ``data``, continued from ``value`` (the checksum of the bytes before), as uint32."""
