"""ListTransactions and DescribeTransactions: their filters, and the order of their checks."""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.pair import Answers, Pair, versions
from tests.oracle.differential.sides import Name
from tests.oracle.differential.transactional_ids import UNKNOWN, TransactionalId

STATES: Final[tuple[list[str], ...]] = (
    [],
    ["Ongoing"],
    ["Empty", "CompleteAbort", "Ongoing"],
    ["CompleteCommit", "CompleteCommit"],
    ["Dead"],
    ["ongoing"],
    ["Nowhere"],
    ["Nowhere", "Ongoing", "Nowhere", ""],
)
DURATIONS: Final = (-5, -1, 0, 3_600_000)
PATTERNS: Final = (None, "", "[", "(", "tx-.*", "tx-", ".*-ongoing")


class Listing:
    """Four transactional ids: empty, in a transaction, and after a commit and an abort."""

    def __init__(self, pair: Pair, topic: str) -> None:
        pair.create(topic)
        self.pair = pair
        self.ids: list[str] = []
        self.producers: list[Name | int] = []
        for state in ("empty", "ongoing", "committed", "aborted"):
            one = TransactionalId(pair, topic, f"-{state}")
            one.init(5)
            if state != "empty":
                one.add(3, one.producers[-1], [0], verify=False)
            if state in ("committed", "aborted"):
                one.end(4, one.producers[-1], commit=state == "committed")
            one.describe()
            self.ids.append(one.id)
            self.producers.append(one.producers[-1][0])

    def compare(self, version: int, **fields: Any) -> Answers:
        """Compare the answers to ListTransactions, of which other tests' ids are no part."""
        answers = self.pair.ask(ApiKey.LIST_TRANSACTIONS, version, **fields)
        for answer in answers.both:
            found = [one for one in answer["transaction_states"] if one["transactional_id"] in self.ids]
            answer["transaction_states"] = sorted(found, key=lambda one: str(one["transactional_id"]))
        return answers.check(f"ListTransactions v{version} {fields}", ignore=("producer_id",))


@pytest.fixture
def listing(pair: Pair, topic: str) -> Listing:
    return Listing(pair, topic)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
def test_transactional_ids_are_listed_by_filters(listing: Listing, version: int) -> None:
    """Every filter with every other one, also with invalid ones: which error or which unknown states are answered."""
    producers: tuple[list[Name | int], ...] = ([], listing.producers[1:3], [UNKNOWN, listing.producers[0]], [-1])
    durations = DURATIONS if version >= 1 else DURATIONS[1:2]
    patterns = PATTERNS if version >= 2 else PATTERNS[:1]
    for states, ids, duration, pattern in product(STATES, producers, durations, patterns):
        fields: dict[str, Any] = {"state_filters": states, "producer_id_filters": ids}
        if version >= 1:
            fields["duration_filter"] = duration
        if version >= 2:
            fields["transactional_id_pattern"] = pattern
        listing.compare(version, **fields)


def test_every_transactional_id_of_a_request_is_described_by_itself(listing: Listing) -> None:
    """In the order of the request, also the empty one, unknown ones, and those that are asked for twice."""
    empty, ongoing, committed, aborted = listing.ids
    for asked in (
        [],
        [""],
        ["nowhere"],
        [committed, "", aborted],
        ["", "nowhere", ongoing, "nowhere", ""],
        [empty, empty, ongoing, ongoing],
    ):
        answers = listing.pair.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=asked)
        answers.check(f"DescribeTransactions {asked}", ignore=("producer_id", "transaction_start_time_ms"))
