"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn and DescribeTransactions of any producers.

A response of CONCURRENT_TRANSACTIONS is asked again: how long the markers of a transaction take differs.
"""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.pair import Pair, versions
from tests.oracle.differential.transactional_ids import TIMEOUT_MS, TransactionalId

PARTITIONS: Final = 3


def test_a_transaction_in_every_version(pair: Pair, topic: str) -> None:
    pair.create(topic, PARTITIONS)
    ids = TransactionalId(pair, topic)
    for version in versions(ApiKey.INIT_PRODUCER_ID, until=5):
        ids.init(version)
    for version in versions(ApiKey.END_TXN):
        for commit in (True, False):
            added = 3 if version < 5 else 5
            ids.add(added, ids.producers[-1], [0, 1], verify=False)
            ids.add_offsets(min(version, 4), ids.producers[-1])
            ids.describe()
            producer = ids.producers[-1]
            for outcome in (commit, commit, not commit):
                ids.end(version, producer, outcome)
            ids.describe()


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID, until=5))
def test_initializations_that_are_refused(pair: Pair, version: int) -> None:
    refused: tuple[dict[str, Any], ...] = (
        {"transactional_id": "", "transaction_timeout": TIMEOUT_MS},
        {"transactional_id": "x", "transaction_timeout": 0},
        {"transactional_id": "x", "transaction_timeout": -1},
        {"transactional_id": "x", "transaction_timeout": 900_001},
    )
    for fields in refused:
        pair.same(ApiKey.INIT_PRODUCER_ID, version, **fields)
        if version >= 3:
            pair.same(ApiKey.INIT_PRODUCER_ID, version, **fields, producer_id=5)
            pair.same(ApiKey.INIT_PRODUCER_ID, version, **fields, producer_epoch=5)


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
def test_unknown_partitions(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, PARTITIONS)
    ids = TransactionalId(pair, topic)
    ids.init(5)
    for verify in (False, True):
        ids.add(version, ids.producers[-1], [0, PARTITIONS], verify)
        ids.add(version, ids.producers[-1], [], verify)
        ids.describe()


@pytest.mark.parametrize("seed", range(8))
def test_random_requests(pair: Pair, topic: str, seed: int) -> None:
    pair.create(topic, PARTITIONS)
    ids = TransactionalId(pair, topic)
    rnd = random.Random(seed)
    for _ in range(80):
        # Mostly the present producer, otherwise one that was fenced, or an epoch that was never given.
        producer = ids.producers[-1] if rnd.random() < 0.7 else rnd.choice(ids.producers)
        if rnd.random() < 0.1:
            producer = producer[0], max(producer[1] + rnd.choice((-1, 1, 2)), 0)
        match rnd.randrange(10):
            case 0:
                ids.init(rnd.randrange(6))
            case 1:
                ids.init(rnd.randrange(3, 6), producer, rnd.choice((TIMEOUT_MS, 1_000_000)))
            case 2 | 3 | 4 | 5:
                partitions = rnd.sample(range(PARTITIONS), rnd.randint(1, PARTITIONS))
                ids.add(rnd.choice((0, 1, 2, 3, 3, 4, 5, 5)), producer, partitions, rnd.random() < 0.3)
            case 6:
                ids.add_offsets(rnd.randrange(5), producer)
            case _:
                ids.end(rnd.choice((0, 1, 2, 3, 4, 4, 5, 5, 5, 5)), producer, rnd.random() < 0.6)
        if rnd.random() < 0.3:
            ids.describe()
    ids.describe()
