"""Converts errors of the disk and of damaged files into KafkaError."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.records.record_cursor import RecordTooLarge
from milena.storage.files.index_file import CorruptIndex
from milena.storage.log.context import LogContext


class Guarded(Protocol):
    """The part of a log that the guard needs."""

    @property
    def context(self) -> LogContext: ...

    @property
    def folder(self) -> str: ...

    @property
    def retired(self) -> bool: ...
    def ended_by(self, broken: BrokenInvariant) -> BrokenInvariant: ...


L = TypeVar("L", bound=Guarded)
P = ParamSpec("P")
T = TypeVar("T")


def guarded(method: Callable[Concatenate[L, P], T]) -> Callable[Concatenate[L, P], T]:
    """Decorate a method of a log that uses the disk.

    If the directory or the log is offline, or the log is deleted, the method raises KafkaError KAFKA_STORAGE_ERROR at
    once. An OSError takes the directory offline and is raised as KAFKA_STORAGE_ERROR. A damaged file is raised as
    CORRUPT_MESSAGE, a record above ``max.decompressed.message.bytes`` as INVALID_RECORD. A violated invariant takes the
    log offline.
    """

    @wraps(method)
    def call(log: L, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if log.context.offline or log.retired:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.folder} is offline")
        try:
            return method(log, *args, **kwargs)
        except RecordTooLarge as too_large:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(too_large)) from too_large
        except (CorruptBatch, CorruptIndex) as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except BrokenInvariant as broken:
            raise log.ended_by(broken) from broken
        except OSError as failure:
            log.context.failed(failure)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.folder}: {failure}") from failure

    return call
