"""What Kafka's Java consumer does that committed (3, LE-1) in scenario 5 of KIP-405, after A leads again in LE-2: the
table in docs/scenarios.md. The other clients are in tests/wire."""

from __future__ import annotations

from pathlib import Path

from tests.oracle.kafka import java
from tests.oracle.programs import running
from tests.wire.divergence import LINEAGE, POSITION, divergence

PROGRAM = Path(__file__).with_name("JavaClients.java")
CLIENT = "java"


def test_it_asks_for_the_end_of_its_epoch_and_reads_on(tmp_path: Path) -> None:
    with divergence(tmp_path / "cluster") as after:
        after.commit(CLIENT)
        fetches, questions = after.traced("FETCH", CLIENT), after.traced("OFFSET_FOR_LEADER_EPOCH", CLIENT)
        settings = (f"client.id={CLIENT}", "auto.offset.reset=none")
        with running(java(str(PROGRAM), "consume", after.bootstrap, CLIENT, "t", *settings)) as consumer:
            read = {int(fields[2]): fields[5] for fields in consumer.records(len(LINEAGE))}
        assert read == LINEAGE
        assert questions.fields("leader_epoch") == [after.epochs[1]]
        assert questions.fields("current_leader_epoch") == [after.epochs[2]]
        assert fetches.fields("fetch_offset")[0] == POSITION
        assert fetches.fields("current_leader_epoch")[0] == after.epochs[2]
