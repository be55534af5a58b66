"""The times of requests by phase (Kafka's RequestMetrics).

The phases in Milena's terms: a request *waits* from the read of its bytes until its handler is called, because of
earlier requests of its connection and of other connections' turns (RequestQueueTimeMs). The handler runs on the event
loop (LocalTimeMs); if it works cooperatively, this includes the turns of others. If the handler returns without an
answer, for example because a produce waits for followers, the time until the answer is RemoteTimeMs. An answer waits
for those of earlier requests of the connection (ResponseQueueTimeMs), and is then sent until the kernel has accepted it
(ResponseSendTimeMs). TotalTimeMs is their sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from milena.node.metrics import RECENT, Counter, Metrics
from milena.protocol.errors import error_name

Phases: TypeAlias = tuple[float, float, float, float, float]
"""Seconds of each phase, in the order of PHASES."""
PREFIX: Final = "kafka_network_requestmetrics_"
PHASES: Final = (
    ("requestqueuetimems", "Milliseconds from the read of a request until its handler was called."),
    ("localtimems", "Milliseconds in the handler of a request."),
    ("remotetimems", "Milliseconds from the return of the handler until there was an answer."),
    ("responsequeuetimems", "Milliseconds that an answer waited for those of earlier requests of its connection."),
    ("responsesendtimems", "Milliseconds until the kernel had accepted an answer."),
)
TOTAL: Final = ("totaltimems", "Milliseconds from the read of a request until the kernel had accepted its answer.")


class RequestTimes:
    """Count and sums of the phases of an API's requests, and the phases of the last requests."""

    __slots__ = ("count", "local", "queue", "recent", "remote", "response_queue", "send")

    def __init__(self) -> None:
        self.count = 0
        self.queue = self.local = self.remote = self.response_queue = self.send = 0.0
        self.recent: list[Phases] = []

    def record(self, queue: float, local: float, remote: float, response_queue: float, send: float) -> None:
        """Add one request, in seconds."""
        phases = queue, local, remote, response_queue, send
        recent = self.recent
        if len(recent) < RECENT:
            recent.append(phases)
        else:
            recent[self.count % RECENT] = phases
        self.count += 1
        self.queue += queue
        self.local += local
        self.remote += remote
        self.response_queue += response_queue
        self.send += send

    def sums(self) -> Phases:
        return self.queue, self.local, self.remote, self.response_queue, self.send


class Phase:
    """One phase of an API's requests as a summary; the whole request if ``index`` is None."""

    def __init__(self, times: RequestTimes, index: int | None) -> None:
        self.times = times
        self._index = index

    @property
    def count(self) -> int:
        return self.times.count

    @property
    def total_ms(self) -> float:
        return self._of(self.times.sums())

    def recent(self) -> Sequence[float]:
        return [self._of(phases) for phases in self.times.recent]

    def _of(self, phases: Phases) -> float:
        if self._index is not None:
            return 1000.0 * phases[self._index]
        queue, local, remote, response_queue, send = phases
        return 1000.0 * (queue + local + remote + response_queue + send)


def event_times(metrics: Metrics) -> RequestTimes:
    """Return the times of all requests to a controller except fetches: Kafka's events of its controller."""
    manager, request = "kafka_controller_controllereventmanager_", "Milliseconds that a request to the controller"
    queue = metrics.summary(
        f"{manager}eventqueuetimems", lambda: Phase(RequestTimes(), 0), f"{request} waited for its handler."
    )
    assert isinstance(queue, Phase)
    metrics.summary(
        f"{manager}eventqueueprocessingtimems", partial(Phase, queue.times, 1), f"{request} spent in its handler."
    )
    return queue.times


class RequestErrors:
    """Counts the errors in the answers of an API by their name, as Kafka's ErrorsPerSec does: of the whole answer, and
    of each of its parts that has an error of its own."""

    __slots__ = ("_counters", "_metrics", "_request")

    def __init__(self, metrics: Metrics, request: str) -> None:
        self._metrics = metrics
        self._request = request
        self._counters: dict[int, Counter] = {}

    def note(self, code: int) -> None:
        counter = self._counters.get(code)
        if counter is None:
            counter = self._counters[code] = self._metrics.counter(
                f"{PREFIX}errorspersec_total", "Errors in answers.", request=self._request, error=error_name(code)
            )
        counter.value += 1


def error_codes(fields: Mapping[str, object]) -> Iterator[int]:
    """Yield the error code, or 0, of each part of an answer."""
    code = fields.get("error_code")
    yield code if isinstance(code, int) else 0
    for value in fields.values():
        if isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, Mapping):
                    yield from error_codes(item)


def request_times(metrics: Metrics, request: str) -> RequestTimes:
    """Return the times of an API's requests, registered on first use. The roles of a combined node share them, as in
    Kafka."""
    name, text = TOTAL
    total = metrics.summary(PREFIX + name, lambda: Phase(RequestTimes(), None), text, request=request)
    assert isinstance(total, Phase)
    for index, (name, text) in enumerate(PHASES):
        metrics.summary(PREFIX + name, partial(Phase, total.times, index), text, request=request)
    return total.times
