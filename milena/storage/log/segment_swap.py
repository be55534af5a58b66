"""Replaces all segments of a closed metadata log by one new segment; the replaced files are renamed.

The new file is complete and synced before it is renamed to ``.log.swap``. If the swap is interrupted after that, it is
completed when the log is next opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Final

from milena.protocol.types import Offset
from milena.runtime.disk import Disk
from milena.storage.files.names import EPOCHS, LOG, SWAP, TEMPORARY, offset_of_file, segment_file
from milena.storage.log.survey import Piece, segment_bases

SET_ASIDE: Final = ".damaged"
_COPY_BYTES: Final = 1 << 20


def swap_segments(disk: Disk, folder: str, base: Offset, pieces: Iterable[Piece]) -> list[str]:
    """Replace the log in ``folder`` by ``pieces``, whose first offset is ``base``. Blocks. Returns the new paths of the
    replaced files. Raises OSError: the log is then unchanged, or ``finish_swap`` can complete the swap."""
    path = f"{folder}/{segment_file(base, LOG)}{SWAP}"
    disk.remove(path + TEMPORARY)
    with closing(disk.open(path + TEMPORARY, create=True)) as new:
        for piece in pieces:
            with closing(disk.open(piece.path, read_only=True)) as source:
                position, end = piece.position, piece.position + piece.size
                while position < end:
                    data = source.pread(min(_COPY_BYTES, end - position), position)
                    if not data:
                        raise OSError(f"{piece.path} has become shorter")
                    new.append([data])
                    position += len(data)
        new.sync()
    disk.rename(path + TEMPORARY, path)
    return finish_swap(disk, folder)


def finish_swap(disk: Disk, folder: str) -> list[str]:
    """Complete an interrupted swap, if there is one. Blocks. Returns the new paths of the replaced files. Raises
    OSError."""
    try:
        names = disk.list(folder)
    except FileNotFoundError:
        return []
    swaps = [name for name in names if name.endswith(LOG + SWAP) and offset_of_file(name) is not None]
    if not swaps:
        return []
    aside = []
    for base in segment_bases(disk, folder):
        name = segment_file(base, LOG)
        kept = name + SET_ASIDE
        while disk.exists(f"{folder}/{kept}"):
            kept += SET_ASIDE
        disk.rename(f"{folder}/{name}", f"{folder}/{kept}")
        aside.append(f"{folder}/{kept}")
    disk.remove(f"{folder}/{EPOCHS}")  # leader epochs are rebuilt from the new batches
    new = f"{folder}/{swaps[-1]}"
    disk.rename(new, new.removesuffix(SWAP))
    return aside
