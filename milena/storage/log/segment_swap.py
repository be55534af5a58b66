"""One new segment in the place of all segments of a log that nobody has open; what it replaces is set aside.

The new file is whole and synced before it is called ``.log.swap``; from then on the change is finished by whoever opens
the log next, wherever the one who began it was stopped.
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
    """Make ``pieces``, whose first offset is ``base``, the whole log in ``folder``. Blocks. Returns the files that were
    set aside. Raises OSError; the log is as it was then, or ``finish_swap`` goes on."""
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
    """Go on with a swap that has begun; without one nothing happens. Blocks. Returns as above. Raises OSError."""
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
    disk.remove(f"{folder}/{EPOCHS}")  # they come from the batches, which may be others
    new = f"{folder}/{swaps[-1]}"
    disk.rename(new, new.removesuffix(SWAP))
    return aside
