"""Reads the metadata image from the folder of a stopped node, without changing the folder.

Uncommitted records at the end of the log are included, since the log does not contain the high watermark.
"""

from __future__ import annotations

from milena.node.metadata.image import MetadataImage
from milena.node.metadata.loader import replay_batch
from milena.node.metadata.replay import Replayer
from milena.node.metadata.snapshots import SnapshotStore, load_image, parse_file_name
from milena.protocol.records.batch import CorruptBatch, iter_batches
from milena.runtime.disk import Disk
from milena.storage.files.names import LOG, offset_of_file


def read_image(disk: Disk, folder: str) -> MetadataImage:
    """Return the image of the metadata log in ``folder``: the latest snapshot and the valid part of the log after it.

    Blocks. Raises OSError, and ValueError (CorruptMetadataSnapshot, ReplayError, DecodeError) if the contents are
    invalid.
    """
    names = disk.list(folder)
    snapshots = [found for name in names if (found := parse_file_name(name)) is not None]
    image = load_image(SnapshotStore(disk, folder), max(snapshots)) if snapshots else MetadataImage()
    replayer = Replayer(image)
    for name in sorted(name for name in names if name.endswith(LOG) and offset_of_file(name) is not None):
        try:
            for batch in iter_batches(memoryview(disk.read(f"{folder}/{name}"))):
                if batch.last_offset <= image.offset:
                    continue
                batch.verify_crc()
                if batch.base_offset > image.offset + 1:
                    return image
                replay_batch(replayer, batch)
        except CorruptBatch:
            break
    return image
