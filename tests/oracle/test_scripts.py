"""The same calls by Kafka's tools and by Milena's scripts, against the same cluster, print the same."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.oracle.tools import (
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    DELETE_RECORDS,
    ELECT,
    FEATURES,
    GROUPS,
    LOG_DIRS,
    OFFSETS,
    QUORUM,
    REASSIGN,
    TOPICS,
    Ran,
    Tools,
)
from tests.wire.scripts import script

MAINS = {
    "kafka-topics": TOPICS,
    "kafka-broker-api-versions": API_VERSIONS,
    "kafka-console-producer": CONSOLE_PRODUCER,
    "kafka-console-consumer": CONSOLE_CONSUMER,
    "kafka-consumer-groups": GROUPS,
    "kafka-configs": CONFIGS,
    "kafka-get-offsets": OFFSETS,
    "kafka-delete-records": DELETE_RECORDS,
    "kafka-log-dirs": LOG_DIRS,
    "kafka-leader-election": ELECT,
    "kafka-reassign-partitions": REASSIGN,
    "kafka-metadata-quorum": QUORUM,
    "kafka-features": FEATURES,
    "kafka-cluster": CLUSTER,
    "kafka-storage": "kafka.tools.StorageTool",
}
SCENARIOS = {
    "topics": """
        kafka-topics B --create --topic T --partitions 2 --replication-factor 3 --config retention.ms=3600000
        kafka-topics B --create --topic T
        kafka-topics B --create --topic T --if-not-exists
        kafka-topics B --list --topic T
        kafka-topics B --describe --topic T
        kafka-topics B --describe --topic T --topics-with-overrides
        kafka-topics B --describe --topic T --under-min-isr-partitions
        kafka-topics B --describe --topic no-T
        kafka-topics B --alter --topic T --partitions 3
        kafka-topics B --alter --topic T --partitions 2
        kafka-topics B --create --topic new-T --replication-factor 9
        kafka-topics B --create --topic new-T --partitions 0
        kafka-topics B --create --topic new-T --config no.such.key=1
        kafka-topics B --create --topic new-T --config retention.ms
        kafka-topics B --create --topic 'not a name'
        kafka-topics B --create --topic new-T --replica-assignment 1:1
        kafka-topics B --delete --topic T
        kafka-topics B --delete --topic T
        kafka-topics B --delete --topic T --if-exists
        kafka-topics B
        kafka-topics B --create
        kafka-topics B --list --create
        kafka-topics B --list --partitions 3
        kafka-topics B --list --nonsense
        kafka-topics B --topic
        kafka-topics --version
        kafka-topics --list --bootstrap-server nowhere.invalid:9092
        kafka-broker-api-versions B
    """,
    "configurations": """
        kafka-topics B --create --topic T
        kafka-configs B --describe --entity-type topics --entity-name T
        kafka-configs B --alter --entity-type topics --entity-name T \
            --add-config retention.ms=86400000,cleanup.policy=[delete,compact]
        kafka-configs B --describe --topic T
        kafka-configs B --describe --topic T --all
        kafka-configs B --alter --topic T --delete-config retention.ms
        kafka-configs B --alter --topic T --add-config retention.seconds=1
        kafka-configs B --alter --topic T --add-config retention.ms
        kafka-configs B --alter --topic T
        kafka-configs B --describe --topic no-T
        kafka-configs B --describe --entity-type brokers --entity-name 2
        kafka-configs B --describe --entity-type brokers --entity-name 2 --all
        kafka-configs B --describe --entity-type brokers --entity-default
        kafka-configs B --describe --entity-type brokers --entity-name two
        kafka-configs B --describe --entity-type broker-loggers --entity-name 1
        kafka-configs B --alter --entity-type broker-loggers --entity-name 1 --add-config no.such.logger=DEBUG
        kafka-configs B --describe --entity-type things
        kafka-configs B --describe
        kafka-configs --describe --topic T
    """,
    "records": """
        kafka-topics B --create --topic T --partitions 1
        <k1:v1\\nk2:v2\\n kafka-console-producer B --topic T \
            --reader-property parse.key=true --reader-property key.separator=:
        <a:1,b:2\\tk3\\tNULL\\n kafka-console-producer B --topic T --sync --compression-codec zstd \
            --reader-property parse.key=true --reader-property parse.headers=true --reader-property null.marker=NULL
        <none\\n kafka-console-producer B --topic T --reader-property parse.key=true
        <x kafka-console-producer B
        <x kafka-console-producer B --topic T --broker-list b:9092
        kafka-console-consumer B --topic T --from-beginning --max-messages 3
        kafka-console-consumer B --topic T --partition 0 --from-beginning --max-messages 3 \
            --formatter-property print.key=true \
            --formatter-property print.headers=true --formatter-property print.offset=true \
            --formatter-property print.partition=true --formatter-property key.separator=/
        kafka-console-consumer B --topic T --partition 0 --offset 1 --max-messages 1
        kafka-console-consumer B --topic T --partition 0 --offset some
        kafka-console-consumer B --topic T --offset 1
        kafka-console-consumer B
        kafka-get-offsets B --topic T
        kafka-get-offsets B --topic-partitions T:0 --time earliest
        kafka-get-offsets B --topic T --time soon
        kafka-get-offsets B --topic no-T
        kafka-delete-records B --offset-json-file OFFSETS
        kafka-log-dirs B --describe --topic-list T
        kafka-log-dirs B --describe --broker-list 9
    """,
    "groups": """
        kafka-topics B --create --topic T --partitions 1
        <1\\n2\\n3\\n kafka-console-producer B --topic T
        kafka-console-consumer B --topic T --group group-T --from-beginning --max-messages 2
        kafka-consumer-groups B --describe --group group-T
        kafka-consumer-groups B --describe --group group-T --verbose
        kafka-consumer-groups B --describe --group group-T --members
        kafka-consumer-groups B --describe --group no-T
        kafka-consumer-groups B --reset-offsets --group group-T --topic T --to-earliest
        kafka-consumer-groups B --reset-offsets --group group-T --topic T:0 --to-offset 9 --execute
        kafka-consumer-groups B --reset-offsets --group group-T --all-topics --shift-by -1 --execute --export
        kafka-consumer-groups B --reset-offsets --group group-T --all-topics --by-duration P1D --dry-run
        kafka-consumer-groups B --reset-offsets --group group-T --all-topics --by-duration long --dry-run
        kafka-consumer-groups B --reset-offsets --group group-T --topic no-T --to-latest --dry-run
        kafka-consumer-groups B --reset-offsets --group group-T --topic T
        kafka-consumer-groups B --delete-offsets --group group-T --topic T:0
        kafka-consumer-groups B --delete-offsets --group no-T --topic T:0
        kafka-consumer-groups B --delete --group group-T
        kafka-consumer-groups B --delete --group group-T
        kafka-consumer-groups B --describe
        kafka-consumer-groups B --list --members
        kafka-consumer-groups B
    """,
    "the cluster": """
        kafka-topics B --create --topic T --replica-assignment 1:2:3
        kafka-cluster cluster-id B
        kafka-cluster list-endpoints B
        kafka-cluster list-endpoints C
        kafka-cluster unregister B --id 77
        kafka-features B describe
        kafka-features C describe
        kafka-features B upgrade --feature group.version=9
        kafka-features B upgrade
        kafka-metadata-quorum C describe --status
        kafka-metadata-quorum B describe
        kafka-leader-election B --election-type preferred --topic T --partition 0
        kafka-leader-election B --election-type preferred --topic T --partition 9
        kafka-leader-election B --election-type preferred --topic T
        kafka-reassign-partitions B --list
        kafka-reassign-partitions B --verify --reassignment-json-file REPLICAS
        kafka-reassign-partitions B --cancel --reassignment-json-file REPLICAS
        kafka-reassign-partitions B
        kafka-storage info -c NOWHERE
    """,
}
VARYING = (
    (re.compile(r"(TopicId: )\S+"), r"\1ID"),
    (re.compile(r"(Leader: |Replicas: |Isr: |LeaderEpoch: +|HighWatermark: +|Epoch: |Lag\w*: +)[\d,]+"), r"\1N"),
    (re.compile(r'"(size|offsetLag)":\d+'), r'"\1":0'),
)
"""What differs between two topics or two moments."""
LOGGED = re.compile(r"^(?:\[[^\]]+\] |)(?:WARN|ERROR) (?:\S+ - )?")
"""The beginning of a line of a log."""
TO_STANDARD_ERROR = re.compile(r"^(?:Option|Warning:) .*deprecated.*\n", re.MULTILINE)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_both_print_the_same(tools: Tools, cluster: LocalCluster, topic: str, tmp_path: Path, scenario: str) -> None:
    (controller,) = cluster.controller.listeners.values()
    servers = {"B": ("--bootstrap-server", cluster.bootstrap), "C": ("--bootstrap-controller", controller)}
    differences = []
    for call in re.sub(r"\\\n\s+", "", SCENARIOS[scenario]).strip().splitlines():
        stdin, words = typed(call.strip())
        seen: list[Ran] = []
        for own in (f"{topic}-k", f"{topic}-m"):
            names = files(tmp_path, own)
            name, *arguments = [
                part for word in words for part in servers.get(word) or [names.get(word) or re.sub(r"\bT\b", own, word)]
            ]
            if not seen:
                ran = tools.run(MAINS[name], *arguments, stdin=stdin)
            else:
                ran = Ran(*script(name, *arguments, stdin=stdin))
            seen.append(Ran(ran.status, plain(ran.out, own, names), plain(ran.err, own, names)))
        kafka, ours = seen
        same = (ours.status, lines(ours.out)) == (kafka.status, lines(kafka.out))
        if not same or not any(first_error(ours) <= words_of(line) for line in [*kafka.err.splitlines(), ""]):
            differences.append(f"{call.strip()}\n{kafka}\n{ours}")
    assert not differences, "\n".join(differences)


def typed(call: str) -> tuple[str, list[str]]:
    """Return the standard input of a call, which is after ``<``, and its words."""
    if not call.startswith("<"):
        return "", shlex.split(call)
    text, _, rest = call.removeprefix("<").partition(" kafka-")
    return text.encode().decode("unicode_escape"), shlex.split(f"kafka-{rest}")


def first_error(ran: Ran) -> set[str]:
    """Return the words of the first message of a script that has failed, without the name of an exception."""
    if not ran.status or not ran.err:
        return set()
    return words_of(LOGGED.sub("", ran.err.splitlines()[0]).rpartition("Exception: ")[2].removesuffix(f" ({TOPICS})"))


def words_of(line: str) -> set[str]:
    """Return the words of a message; in what order Kafka lists options differs from run to run."""
    return set(line.replace(",", " ").split())


def files(folder: Path, topic: str) -> dict[str, str]:
    """Write the JSON files that calls name; return their paths by these names."""
    contents: dict[str, dict[str, object]] = {"OFFSETS": {"offset": 2}, "REPLICAS": {"replicas": [1, 2, 3]}}
    for name, entry in contents.items():
        partitions = [{"topic": topic, "partition": 0, **entry}]
        (folder / f"{name}-{topic}").write_text(json.dumps({"version": 1, "partitions": partitions}))
    return {name: str(folder / f"{name}-{topic}") for name in contents} | {"NOWHERE": str(folder / "nowhere")}


def plain(text: str, topic: str, names: dict[str, str]) -> str:
    """Return output without what differs between both topics."""
    for name, path in names.items():
        text = text.replace(path, name)
    text = TO_STANDARD_ERROR.sub("", text.replace(topic, "TOPIC"))
    for pattern, constant in VARYING:
        text = pattern.sub(constant, text)
    return text


def lines(text: str) -> list[str]:
    """Return the lines in any order: some of Kafka's are in that of a hash table."""
    return sorted(text.splitlines())
