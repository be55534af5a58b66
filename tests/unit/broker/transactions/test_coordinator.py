"""TransactionCoordinator: leadership, loading, timeouts and expiration."""

from __future__ import annotations

import pytest

from milena.broker.transactions.loading import Loader
from milena.broker.transactions.model import Transaction
from milena.broker.transactions.transition_log import Cause, TransitionLog
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import TRANSACTION_TOPIC
from tests.unit.broker.fixtures import ME, Bench, Request, led_by, set_isr
from tests.unit.broker.transactions.coordinators import TOPIC, Coordinated, one

NONE = ErrorCode.NONE


def refusal(coordinated: Coordinated) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        coordinated.transactions.find("x")
    return caught.value.code


def state(coordinated: Coordinated) -> TransactionState:
    found = coordinated.transactions.find("x")
    assert found is not None
    return found.state


def test_ids_are_loaded_in_each_leader_epoch(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.add(0, 1)
    coordinated.elect()
    assert refusal(coordinated) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinated.init().response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinated.tasks.run()
    found = coordinated.transactions.find("x")
    assert found is not None
    assert (found.state, list(found.partitions)) == (TransactionState.ONGOING, [(TOPIC, 1)])


def test_another_broker_coordinates_after_a_resignation(coordinated: Coordinated) -> None:
    coordinated.init()
    shard = coordinated.transactions.shard("x")
    coordinated.transactions.resigned(0)
    assert refusal(coordinated) is ErrorCode.NOT_COORDINATOR
    assert shard.closed
    assert coordinated.markers.cancelled == [0]
    coordinated.transactions.resigned(0)
    assert coordinated.markers.cancelled == [0]


def test_the_same_leader_epoch_is_loaded_once(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.elect(0)
    assert not coordinated.tasks.running
    assert coordinated.transactions.find("x") is not None


def test_a_leadership_that_ends_during_the_load_loads_nothing(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.elect()
    coordinated.partition.become(led_by(ME, leader_epoch=9))  # no call reports it
    coordinated.tasks.run()
    assert refusal(coordinated) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(("error", "noted"), [(CorruptBatch("damaged"), 0), (ValueError("a mistake"), 1)])
def test_a_partition_that_cannot_be_loaded_is_not_coordinated(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch, error: Exception, noted: int
) -> None:
    coordinated.init()

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Loader, "apply", fail)
    coordinated.elect()
    coordinated.tasks.run()
    assert refusal(coordinated) is ErrorCode.NOT_COORDINATOR
    assert coordinated.bench.contained.count == noted


def test_listing_waits_for_all_partitions(coordinated: Coordinated) -> None:
    assert [shard.transactions for shard in coordinated.transactions.shards()] == [{}]
    coordinated.elect()
    with pytest.raises(KafkaError):
        coordinated.transactions.shards()
    coordinated.tasks.run()
    assert len(list(coordinated.transactions.shards())) == 1


def test_the_empty_id_is_invalid(coordinated: Coordinated) -> None:
    with pytest.raises(KafkaError) as caught:
        coordinated.transactions.find("")
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_markers_have_the_epochs_of_the_transaction_and_the_coordinator(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.add(0, 1, 2)
    coordinated.end(0)
    [work] = coordinated.markers.sent
    assert (work.transactional_id, work.state_partition, work.coordinator_epoch) == ("x", 0, coordinated.epoch)
    assert (work.producer_id, work.producer_epoch, work.commit, work.transaction_version) == (1_000, 1, True, 2)
    assert list(work.partitions) == [(TOPIC, 1), (TOPIC, 2)]
    work.done()
    assert state(coordinated) is TransactionState.COMPLETE_COMMIT


def test_markers_of_a_client_below_version_2_have_its_epoch(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.add(0, 1)
    coordinated.end(0, commit=False, version=4)
    [work] = coordinated.markers.sent
    assert (work.producer_epoch, work.commit, work.transaction_version) == (0, False, 0)


def test_a_transaction_whose_markers_are_refused_stays_prepared_until_the_next_epoch(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.add(0, 1)
    coordinated.end(0)
    coordinated.markers.sent[0].fenced(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert state(coordinated) is TransactionState.PREPARE_COMMIT
    assert coordinated.init().response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    coordinated.elect()
    coordinated.tasks.run()
    [work] = coordinated.markers.sent
    assert work.coordinator_epoch == coordinated.epoch
    work.done()
    assert state(coordinated) is TransactionState.COMPLETE_COMMIT


def turns(coordinated: Coordinated, name: str) -> None:
    """Run the periodic task ``name`` once, after its pause."""
    coordinated.transactions.start()
    task = next(one for one in coordinated.tasks.kept if name in one.__name__)
    steps = task().__await__()
    for _ in range(20):
        next(steps)
    steps.close()


def test_transactions_are_aborted_after_their_timeouts(coordinated: Coordinated) -> None:
    coordinated.init(timeout_ms=500)
    coordinated.add(0, 1)
    coordinated.bench.clock.advance(1)
    turns(coordinated, "abort")
    [work] = coordinated.markers.sent
    assert (work.commit, work.producer_epoch) == (False, 1)
    coordinated.markers.write()
    assert state(coordinated) is TransactionState.COMPLETE_ABORT
    assert coordinated.add(0, 1).response.results_by_topic_v3_and_below[0].results_by_partition[
        0
    ].partition_error_code == (ErrorCode.PRODUCER_FENCED)


def test_ids_are_removed_after_their_expiration(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.bench.clock.advance(604_801)
    turns(coordinated, "expire")
    assert coordinated.transactions.find("x") is None
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.transactions.find("x") is None


def test_a_response_waits_for_the_in_sync_replicas(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinated = _with_a_follower(bench, monkeypatch)
    request = coordinated.init()
    assert not request.answered
    assert coordinated.transactions.find("x") is None
    bench.clock.advance(6)
    assert request.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinated.init().response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_repeated_request_waits_until_what_was_loaded_is_committed(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.elect_with_follower()
    assert not coordinated.add(0, 1).answered
    coordinated.elect_with_follower()
    again = coordinated.add(0, 1)
    assert not again.answered
    alone = led_by(ME, replicas=(ME, 2), leader_epoch=coordinated.epoch, partition_epoch=coordinated.epoch + 1)
    coordinated.partition.become(alone)
    assert errors(again) == [NONE]


def test_a_repeated_request_is_answered_when_the_leadership_ends(coordinated: Coordinated) -> None:
    coordinated.init()
    coordinated.elect_with_follower()
    coordinated.add(0, 1)
    coordinated.elect_with_follower()
    again = coordinated.add(0, 1)
    coordinated.partition.become(led_by(2, replicas=(1, 2), leader_epoch=coordinated.epoch + 1))
    coordinated.transactions.resigned(0)
    assert errors(again) == [ErrorCode.NOT_COORDINATOR]


def errors(request: Request) -> list[int]:
    """The errors of an AddPartitionsToTxn below version 4."""
    return [
        partition.partition_error_code
        for topic in request.response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]


def test_a_resignation_answers_requests_that_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinated = _with_a_follower(bench, monkeypatch)
    request = coordinated.init()
    coordinated.partition.become(led_by(2, replicas=(1, 2), leader_epoch=coordinated.epoch + 1))
    coordinated.transactions.resigned(0)
    assert request.response.error_code == ErrorCode.NOT_COORDINATOR


def test_a_broker_that_stops_answers_requests_that_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinated = _with_a_follower(bench, monkeypatch)
    request = coordinated.init()
    coordinated.transactions.close()
    bench.purgatory.close()
    assert request.response.error_code == ErrorCode.NOT_COORDINATOR
    assert refusal(coordinated) is ErrorCode.NOT_COORDINATOR


def _with_a_follower(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Coordinated:
    async def turn(_: float) -> None:
        pass

    monkeypatch.setattr(bench.clock, "sleep", turn)
    coordinated = Coordinated(bench)
    set_isr(coordinated.partition, 1, 2)
    return coordinated


def test_the_topic_is_the_transaction_log(coordinated: Coordinated) -> None:
    assert coordinated.partition.topic == TRANSACTION_TOPIC
    assert coordinated.transactions.partition_for("anything") == 0


def test_the_time_of_a_load_is_counted(coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Loader.finish

    def slowly(loader: Loader) -> Cooperative[dict[str, Transaction]]:
        coordinated.bench.clock.advance(2.0)
        return finish(loader)

    monkeypatch.setattr(Loader, "finish", slowly)
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.transactions.loads.longest_ms() == 2_000


def noted(coordinated: Coordinated) -> list[tuple[int, int]]:
    """Producer id and epoch of each refusal in the transitions."""
    known = coordinated.transactions.transitions.since(0)
    return [(one.producer_id, one.epoch) for one in known if one.cause is Cause.REFUSED]


def test_refusals_of_fenced_producers_are_transitions_and_a_repeated_one_is_noted_once(
    coordinated: Coordinated,
) -> None:
    coordinated.init()
    coordinated.init()
    assert noted(coordinated) == []
    version = coordinated.transactions.transitions.version
    coordinated.end(0)
    coordinated.add(0, 1)
    coordinated.add_batch(one("x", 1_000, 0, 1, verify=True))
    assert noted(coordinated) == [(1_000, 0)]
    assert coordinated.transactions.transitions.version > version
    coordinated.add(1, 1)
    coordinated.add(0, 1)
    coordinated.init(producer_id=999, producer_epoch=0)
    assert noted(coordinated) == [(1_000, 0), (1_000, 0), (999, 0)]


def test_other_refusals_are_no_transitions(coordinated: Coordinated) -> None:
    coordinated.end(0)
    coordinated.init()
    coordinated.end(0)
    assert noted(coordinated) == []


def test_outside_of_a_lab_a_refusal_is_not_noted(coordinated: Coordinated) -> None:
    coordinated.transactions.transitions = TransitionLog(coordinated.bench.clock, keeps=False)
    coordinated.init()
    coordinated.init()
    coordinated.end(0)
    assert noted(coordinated) == []
