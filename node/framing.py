"""Kafka's frame decoder in the form of the network port."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.frames import BadFrame, FrameDecoder
from runtime.network import FrameError


class KafkaFramer(FrameDecoder):
    """Raises the port's FrameError for bytes that are no frames."""

    __slots__ = ()

    def buffer_updated(self, count: int) -> Iterator[memoryview]:
        only = self.only_frame(count)
        return self._frames(count) if only is None else iter((only,))

    def _frames(self, count: int) -> Iterator[memoryview]:
        try:
            yield from super().buffer_updated(count)
        except BadFrame as error:
            raise FrameError(str(error)) from error
