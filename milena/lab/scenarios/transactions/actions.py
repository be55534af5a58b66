"""Actions with transactions, and what a scenario expects of them.

::

    coordinators: {transactions: [B, C], groups: [A]}
                          create ``__transaction_state`` and ``__consumer_offsets`` with one partition on these brokers
    init: {producer: P, id: app}              a producer with this client id requests its producer id and epoch;
                                              ``version``: the transaction version that its client uses (2),
                                              ``timeout_ms`` of its transactions (60000); without ``id`` it continues
                                              with its producer id (KIP-360)
    produce: {by: P, to: A, values: [0]}      in its transaction; ``of: u-1``; with transaction version 0 or 1 the
                                              producer adds the partition first, unless it has, or ``adds: false``
    add_partitions: {producer: P, partitions: [t-0]}
    send_offsets: {producer: P, member: M, offsets: {t-0: 3}}    or ``group: g`` without a member (before KIP-447)
    commit | abort: P                         or {producer: P}
                          all of them: ``error``: the expected error. ``unanswered: name``: the producer does not wait
                          for the answer, and sends its next requests on another connection
    answered: {name: PRODUCER_FENCED}         wait for the answer to such a request
    join: {group: g, member: M, topics: [u]}  it does not rejoin when others join,
                                              and is removed after a second
    offsets: {group: g, are: {t-0: 3}}        as a consumer asks for them; or ``of: [t-0]`` and ``error``;
                                              ``stable: false``: also those of open transactions (before KIP-447)
    read_committed: {at: A, values: [0], stable: 3}    what a consumer of committed records gets, and the last stable
                                              offset; ``of: u-1``
    hanging: {in: [t-0], are: [t-0]}          the partitions with a hanging transaction (KIP-664)
    abort_hanging: t-0                        write an abort marker there

The expectation ``transactions: {app: {state: Ongoing, partitions: [t-0]}}`` is compared with the coordinator.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NotRequired, TypedDict

from milena.client.cluster import Cluster
from milena.client.consumer import read_records
from milena.client.membership import GroupMetadata, Membership
from milena.client.transactions import OpenTransaction, abort_transaction, find_hanging
from milena.lab.scenarios.events import EventKind
from milena.lab.scenarios.exchanges import mismatch
from milena.lab.scenarios.reading import Reader, fetch_once
from milena.lab.scenarios.recorder import OBSERVER
from milena.lab.scenarios.script import BROKERS, COORDINATORS, Fields, Partition, partition_of
from milena.lab.scenarios.stage import Action, ScenarioFailed, Stage
from milena.lab.scenarios.topics import create_topic
from milena.lab.scenarios.transactions.producers import Answer, ScenarioProducer, Send, answer_of
from milena.lab.scenarios.values import Values, shown_values, values_of
from milena.node.links.outgoing import only
from milena.node.serving.lab_commands import LabCommandError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError, retriable
from milena.protocol.types import OFFSETS_TOPIC, TRANSACTION_TOPIC, TopicPartition

if TYPE_CHECKING:
    from milena.protocol.apis import DescribeTransactionsResponse, OffsetFetchResponse

REQUESTS_IN_TRANSACTIONS: Final = frozenset(
    {"init", "add_partitions", "send_offsets", "join", "offsets", "read_committed", "answered"}
)
"""Actions whose requests are events themselves."""
TOPICS: Final = {"transactions": TRANSACTION_TOPIC, "groups": OFFSETS_TOPIC}
TIMEOUT_MS: Final = 60_000
REBALANCE_MS: Final = 1_000
"""The group removes a member that does not rejoin in this time; the longest of its members counts."""
BY_NAME: Final = 9
"""The last version of OffsetFetch with topic names."""


class Sent(TypedDict):
    """The arguments of each request of a producer."""

    producer: str
    error: NotRequired[str]
    unanswered: NotRequired[str]


class Init(Sent):
    """The arguments of ``init``."""

    id: NotRequired[str]
    version: NotRequired[int]
    timeout_ms: NotRequired[int]


class Add(Sent):
    """The arguments of ``add_partitions``."""

    partitions: Sequence[str]


class Offsets(Sent):
    """The arguments of ``send_offsets``."""

    offsets: Mapping[str, int]
    member: NotRequired[str]
    group: NotRequired[str]


class Produced(TypedDict):
    """The arguments of ``produce`` with ``by``."""

    by: str
    to: str
    values: Values
    of: NotRequired[str]
    adds: NotRequired[bool]
    error: NotRequired[str]
    unanswered: NotRequired[str]


class Join(TypedDict):
    """The arguments of ``join``."""

    group: str
    member: str
    topics: Sequence[str]


class Asked(TypedDict):
    """The arguments of ``offsets``."""

    group: str
    are: NotRequired[Mapping[str, int]]
    of: NotRequired[Sequence[str]]
    error: NotRequired[str]
    stable: NotRequired[bool]


class Committed(TypedDict):
    """The arguments of ``read_committed``."""

    at: str
    values: Values
    stable: int
    of: NotRequired[str]


async def _coordinators(stage: Stage, wanted: Mapping[str, Sequence[str]]) -> None:
    for kind, brokers in wanted.items():
        name = TOPICS[kind]
        await create_topic(stage, name, {0: brokers}, {"cleanup.policy": "compact"})
        place = Partition(name, 0)

        async def without_leader(place: Partition = place) -> str | None:
            leader = (await stage.partition(place))["leader"]
            return None if leader > 0 else f"{place} has no leader"

        await stage.until(f"the leader of {name}", without_leader)


async def coordinator(stage: Stage, topic: str) -> str:
    """Return the broker that leads the one partition of a coordinators' topic. Raises LabCommandError."""
    leader = (await stage.partition(Partition(topic, 0)))["leader"]
    broker = BROKERS[leader - 1] if leader > 0 else "none"
    if broker not in stage.up:
        raise LabCommandError(f"{topic} has no leader that runs")
    return broker


def _producer(stage: Stage, name: str) -> ScenarioProducer:
    if name not in stage.producers:
        raise ScenarioFailed(f"there is no producer {name}; init makes one")
    return stage.producers[name]


Broker = Callable[[], Awaitable[str]]
"""Returns the broker to ask. Raises LabCommandError while there is none."""


async def _request(
    stage: Stage, arguments: Sent, send: Send, broker: Broker, show_late: Callable[[Answer], None] | None = None
) -> Answer:
    """Send a producer's request, repeatedly while the answer is a retriable error that is not expected. Returns the
    answer; at once, with the error NONE, for a request that stays without one: ``show_late`` gets its answer, if one
    arrives later."""
    client, expected = arguments["producer"], ErrorCode[arguments.get("error", "NONE")]
    if (name := arguments.get("unanswered")) is not None:
        channel = stage.channel(await broker(), client, name)

        async def wait() -> None:
            answer = await answer_of(channel, send)
            if show_late is not None:
                show_late(answer)
            stage.answers[name] = answer.error

        stage.driver.runtime.new_tasks("scenario").spawn(wait(), name=name)
        return Answer(ErrorCode.NONE)
    found = [Answer(ErrorCode.NONE)]

    async def other() -> str | None:
        found[0] = answer = await answer_of(stage.channel(await broker(), client), send)
        if answer.error == expected:
            return None
        if retriable(answer.error):
            return f"the answer is {answer.error.name}"
        raise ScenarioFailed(f"{client}: {answer.error.name}, not {expected.name}")

    await stage.until(f"the answer {expected.name} to {client}", other)
    if expected is ErrorCode.NONE:
        found[0].apply()
    return found[0]


async def _of_coordinator(stage: Stage, arguments: Sent, send: Send, topic: str = TRANSACTION_TOPIC) -> Answer:
    return await _request(stage, arguments, send, lambda: coordinator(stage, topic))


async def _init(stage: Stage, arguments: Init) -> None:
    name = arguments["producer"]
    if "id" in arguments:
        stage.producers[name] = ScenarioProducer(arguments["id"], arguments.get("version", 2))
    producer = _producer(stage, name)
    send = producer.init(arguments.get("timeout_ms", TIMEOUT_MS), continues="id" not in arguments)
    await _of_coordinator(stage, arguments, send)


async def produce_by(stage: Stage, arguments: Produced) -> None:
    """Produce in a transaction. Raises ScenarioFailed for another answer than the expected one."""
    name, broker, partition = arguments["by"], arguments["to"], partition_of(arguments.get("of", "t-0"))
    producer = _producer(stage, name)
    sent: Sent = {"producer": name}
    if producer.version < 2 and partition not in producer.added and arguments.get("adds", True):
        await _of_coordinator(stage, sent, producer.add_partitions([partition]))
    for option in ("error", "unanswered"):
        if option in arguments:
            sent[option] = arguments[option]
    values, sequences = values_of(arguments["values"]), dict(producer.sequences)
    send = producer.produce(partition, values, stage.driver.runtime.clock.time_ms())
    text = f"{'' if str(partition) == 't-0' else f'{partition} '}{shown_values(values)}, epoch {producer.epoch}"

    async def leader() -> str:
        return broker

    def show(answer: Answer) -> None:
        result = answer.error.name if answer.error else f"offset {answer.offset}"
        stage.recorder.add(
            EventKind.REQUEST, name, text, target=broker, api="Produce", result=result, error=bool(answer.error)
        )

    if "unanswered" in arguments:
        await _request(stage, sent, send, leader, show)
        return
    answer = await _request(stage, sent, send, leader)
    if answer.error:
        producer.sequences = sequences
    show(answer)
    await stage.observe()


async def _add_partitions(stage: Stage, arguments: Add) -> None:
    places = [partition_of(one) for one in arguments["partitions"]]
    await _of_coordinator(stage, arguments, _producer(stage, arguments["producer"]).add_partitions(places))


async def _send_offsets(stage: Stage, arguments: Offsets) -> None:
    producer = _producer(stage, arguments["producer"])
    member = stage.members[arguments["member"]] if "member" in arguments else GroupMetadata(arguments["group"])
    if producer.version < 2:
        await _of_coordinator(stage, {"producer": arguments["producer"]}, producer.add_offsets(member.group))
    offsets: dict[TopicPartition, int] = {partition_of(name): offset for name, offset in arguments["offsets"].items()}
    await _of_coordinator(stage, arguments, producer.commit_offsets(offsets, member), OFFSETS_TOPIC)


def _end(*, commit: bool) -> Action:
    async def end(stage: Stage, arguments: str | Sent) -> None:
        sent: Sent = {"producer": arguments} if isinstance(arguments, str) else arguments
        await _of_coordinator(stage, sent, _producer(stage, sent["producer"]).end(commit=commit))
        await stage.observe()

    return end


async def _answered(stage: Stage, expected: Mapping[str, str]) -> None:
    for name, error in expected.items():

        async def without_answer(name: str = name) -> str | None:
            return None if name in stage.answers else "there is no answer"

        await stage.until(f"the answer to {name}", without_answer)
        if (found := stage.answers.pop(name)) is not ErrorCode[error]:
            raise ScenarioFailed(f"{name}: {found.name}, not {error}")
    await stage.observe()


@contextlib.asynccontextmanager
async def _cluster(stage: Stage, client: str) -> AsyncIterator[Cluster]:
    """Provide a client of the running brokers."""
    bootstrap = [stage.driver.address(broker) for broker in stage.script.brokers if broker in stage.up]
    cluster = Cluster(stage.driver.runtime, bootstrap, client)
    try:
        yield cluster
    finally:
        cluster.close()


async def _join(stage: Stage, arguments: Join) -> None:
    name = arguments["member"]
    async with _cluster(stage, name) as cluster:
        member = Membership(cluster, arguments["group"], arguments["topics"], rebalance_timeout_ms=REBALANCE_MS)
        assigned = await member.join()
    stage.members[name] = member.metadata
    text = ", ".join(f"{topic}-{number}" for topic, number in sorted(assigned))
    stage.recorder.add(EventKind.STATE, name, f"member of {member.group}, generation {member.generation}, has [{text}]")


async def _offsets(stage: Stage, arguments: Asked) -> None:
    expected, are = ErrorCode[arguments.get("error", "NONE")], arguments.get("are", {})
    asked = [partition_of(name) for name in arguments.get("of", are)]
    topics = [{"name": one.topic, "partition_indexes": [one.number]} for one in asked]

    async def other() -> str | None:
        response: OffsetFetchResponse = await stage.ask(
            await coordinator(stage, OFFSETS_TOPIC),
            ApiKey.OFFSET_FETCH,
            BY_NAME,
            groups=[{"group_id": arguments["group"], "topics": topics}],
            require_stable=arguments.get("stable", True),
        )
        group = only(response.groups)
        found = [(topic.name, one) for topic in group.topics for one in topic.partitions]
        error = ErrorCode(next((one.error_code for _, one in found if one.error_code), group.error_code))
        offsets = {f"{topic}-{one.partition_index}": int(one.committed_offset) for topic, one in found}
        result = error.name if error else ", ".join(f"{name} {offset}" for name, offset in offsets.items())
        if error != expected or (not error and offsets != dict(are)):
            return f"the answer is {result}"
        stage.recorder.add(
            EventKind.REQUEST,
            "consumer",
            f"group {arguments['group']}",
            target=await coordinator(stage, OFFSETS_TOPIC),
            api="OffsetFetch",
            result=result,
            error=bool(error),
        )
        return None

    await stage.until(f"offsets {dict(are) or expected.name}", other)


async def _read_committed(stage: Stage, arguments: Committed) -> None:
    broker, partition = arguments["at"], partition_of(arguments.get("of", "t-0"))
    wanted = values_of(arguments["values"])

    async def other() -> str | None:
        fetched, data = await fetch_once(stage, broker, partition, 0, Reader(committed=True))
        if fetched.error_code:
            return ErrorCode(fetched.error_code).name
        records, _ = read_records(partition.topic, partition.number, memoryview(data), 0, fetched.aborted or ())
        found = [(one.value or b"").decode() for one in records]
        if (found, fetched.last_stable_offset) != (wanted, arguments["stable"]):
            return f"{broker} returns {found} up to {fetched.last_stable_offset}, expected {wanted}"
        return None

    await stage.until(f"reading what is committed of {partition} at {broker}", other)
    text = f"{'' if str(partition) == 't-0' else f'{partition} '}committed: {shown_values(wanted) or 'nothing'}"
    stable = f"last stable offset {arguments['stable']}"
    stage.recorder.add(EventKind.READ, "consumer", f"{text}; {stable}", target=broker)


async def _found_hanging(stage: Stage, partitions: Sequence[str]) -> list[OpenTransaction]:
    async with _cluster(stage, OBSERVER) as cluster:
        return await find_hanging(cluster, [partition_of(one) for one in partitions], open_for_ms=0)


async def _hanging(stage: Stage, arguments: Mapping[str, Sequence[str]]) -> None:
    async def other() -> str | None:
        found = [str(Partition(*one.partition)) for one in await _found_hanging(stage, arguments["in"])]
        return None if found == list(arguments["are"]) else f"found in {found}"

    await stage.until(f"hanging transactions in {arguments['are']}", other)


async def _abort_hanging(stage: Stage, name: str) -> None:
    one = only(await _found_hanging(stage, [name]))
    async with _cluster(stage, "admin") as cluster:
        await abort_transaction(cluster, one.partition, one.producer)
    await stage.observe()


async def differences(stage: Stage, expected: Mapping[str, Fields]) -> list[str]:
    """Return what differs from the expectation ``transactions``. Raises LabCommandError."""
    wrong = []
    for name, fields in expected.items():
        reason = mismatch(fields, await _described(stage, name))
        wrong += [f"transactions.{name}{reason}"] if reason else []
    return wrong


async def _described(stage: Stage, transactional_id: str) -> dict[str, object]:
    broker = await coordinator(stage, TRANSACTION_TOPIC)
    try:
        response: DescribeTransactionsResponse = await stage.channel(broker, OBSERVER).request(
            ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[transactional_id]
        )
    except (ConnectionError, KafkaError) as error:
        raise LabCommandError(str(error)) from error
    found = only(response.transaction_states)
    if found.error_code:
        raise LabCommandError(f"{transactional_id}: {ErrorCode(found.error_code).name}")
    places = sorted(f"{topic.topic}-{number}" for topic in found.topics for number in topic.partitions)
    return {"state": found.transaction_state, "epoch": found.producer_epoch, "partitions": places}


TRANSACTION_ACTIONS: Final[Mapping[str, Action]] = {
    COORDINATORS: _coordinators,
    "init": _init,
    "add_partitions": _add_partitions,
    "send_offsets": _send_offsets,
    "commit": _end(commit=True),
    "abort": _end(commit=False),
    "answered": _answered,
    "join": _join,
    "offsets": _offsets,
    "read_committed": _read_committed,
    "hanging": _hanging,
    "abort_hanging": _abort_hanging,
}
