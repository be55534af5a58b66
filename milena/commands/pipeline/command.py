"""`milena pipeline`: audit, profile and other jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from milena.command_line.choosing import chosen
from milena.command_line.options import CommandLine, Option, Positional, Values, key_value, port_number
from milena.commands.history import DEMANDS, FILE
from milena.commands.tier.places import PLACES

Body: TypeAlias = Callable[[Values], int]
MASTER = "local[*]"
DEMO = "milena-demo"
SPARK = (
    Option("--master", "the Spark cluster; this machine alone without it", "URL", default=MASTER),
    Option("--conf", "a setting of Spark", "K=V", many=True, convert=key_value),
)
TOPICS = Positional("TOPIC", "topics; all without any", many=True)

BOOTSTRAP = Option("--bootstrap", "the brokers, as HOST:PORT,...: adds what is not in the tier", "LIST", short="-b")


def out(default: str) -> Option:
    return Option("--out", "the folder for the results and the page", "DIR", default=default)


AUDIT = CommandLine(
    "pipeline audit",
    "Audit a tier on Spark: read every object, compare it with the metadata topic and the log's leader epochs. Finds\n"
    "gaps, overlaps, orphans, wrong checksums and what nobody reads; tells sizes and ages by topic. Nothing is\n"
    "changed. Ends with code 1 if something is found. An audit that ended half-way goes on where it stopped.",
    [
        *PLACES,
        out("milena-audit"),
        Option("--price", "of a GiB in a month, to tell what unread data cost", "N", default=0.0, convert=float),
        *SPARK,
    ],
    [TOPICS],
    ["milena pipeline audit --dir milena-data", "milena pipeline audit --tier s3://bucket/prefix --out audit"],
)
PROFILE = CommandLine(
    "pipeline profile",
    "Profile topics on Spark: sizes, rates over time, skew of keys and partitions, late records. Reads the tier; with\n"
    "-b the brokers' part of the logs, too. A profile that ended half-way goes on where it stopped.",
    [*PLACES, BOOTSTRAP, out("milena-profile"), *SPARK],
    [TOPICS],
    ["milena pipeline profile", "milena pipeline profile orders -b 127.0.0.1:9092 --out orders-profile"],
)

HISTORY = CommandLine(
    "pipeline history",
    "Judge a history of client operations on Spark, part by part: the verdict of `milena history check`, of files\n"
    "that are too large for one process. Ends with code 1 if there is an anomaly.",
    [*DEMANDS, out("milena-history"), *SPARK],
    [FILE],
    ["milena pipeline history chaos/history.jsonl"],
)
EXPORT = CommandLine(
    "pipeline export",
    "Append what is new in topics to a table, each record once, however often the job is stopped and started.\n"
    "Keys and values are bytes, string, or json:SCHEMA; what is not of its form stays whole in keyBytes, valueBytes.",
    [
        *PLACES,
        BOOTSTRAP,
        out("milena-export"),
        Option("--key", "what keys are", "FORM", default="bytes"),
        Option("--value", "what values are", "FORM", default="bytes"),
        Option(
            "--format", "parquet, or delta with Delta Lake's jars by --conf spark.jars=...", "NAME", default="parquet"
        ),
        *SPARK,
    ],
    [TOPICS],
    ["milena pipeline export orders --key string --value 'json:id INT, text STRING' --out orders"],
)
REPLAY = CommandLine(
    "pipeline replay",
    "Write the records of topics into topics of the same names of another cluster, with their keys, headers,\n"
    "timestamps and partitions, in the order of each partition. A replay that ended half-way goes on where it stopped.",
    [
        Option("--to", "brokers of the other cluster, as HOST:PORT,...", "LIST"),
        Option("--rate", "at most so many records in a second", "N", default=0, convert=int),
        *PLACES,
        BOOTSTRAP,
        out("milena-replay"),
        *SPARK,
    ],
    [TOPICS],
    ["milena pipeline replay orders --to 127.0.0.1:19092 --rate 10000"],
)
COMPACT = CommandLine(
    "pipeline compact",
    "Clean the compacted topics of a tier on Spark: carry out the work orders that leaders have put there, since they\n"
    "have remote.log.compaction.work.orders.enable. The leaders check what was made, and publish it. A job that ended\n"
    "half-way goes on where it stopped. Ends with code 1 if an order could not be carried out.",
    [*PLACES, *SPARK],
    [TOPICS],
    ["milena pipeline compact --dir milena-data", "milena pipeline compact --tier s3://bucket/prefix changes"],
)
LOOK = CommandLine(
    "pipeline look",
    "Run audit and profile on a cluster's tier, and say where their pages are.",
    [
        Option("--dir", "the cluster's directory, as of `milena pipeline demo`", "DIR", default=DEMO),
        out("milena-look"),
        *SPARK,
    ],
    examples=["milena pipeline demo && milena pipeline look"],
)
DEMO_LINE = CommandLine(
    "pipeline demo",
    "Start a cluster in the background and fill two tiered topics, until most of their records are in the tier.",
    [
        Option("--dir", "the cluster's directory", "DIR", default=DEMO),
        Option("--port", "port of the first broker", "P", default=9092, convert=port_number),
        Option("--records", "how many each topic gets", "N", default=60_000, convert=int),
    ],
    examples=["milena pipeline demo", "milena pipeline demo --port 19092 --dir /tmp/demo"],
)


def main(arguments: Sequence[str]) -> int:
    commands: dict[str, tuple[CommandLine, Body]] = {
        "audit": (AUDIT, _audit),
        "profile": (PROFILE, _profile),
        "history": (HISTORY, _history),
        "export": (EXPORT, _export),
        "replay": (REPLAY, _replay),
        "compact": (COMPACT, _compact),
        "demo": (DEMO_LINE, _demo),
        "look": (LOOK, _look),
    }
    meant = chosen("pipeline", commands, arguments)
    if meant is None:
        return 0
    body, values = meant
    return body(values)


def _audit(values: Values) -> int:
    from milena.commands.pipeline.running import audit

    return audit(values)


def _profile(values: Values) -> int:
    from milena.commands.pipeline.running import profile

    return profile(values)


def _history(values: Values) -> int:
    from milena.commands.pipeline.running import history

    return history(values)


def _export(values: Values) -> int:
    from milena.commands.pipeline.running import export

    return export(values)


def _replay(values: Values) -> int:
    from milena.commands.pipeline.running import replay

    return replay(values)


def _compact(values: Values) -> int:
    from milena.commands.pipeline.running import compact

    return compact(values)


def _demo(values: Values) -> int:
    from milena.commands.pipeline.demo import demo

    return demo(values)


def _look(values: Values) -> int:
    from milena.commands.pipeline.running import look

    return look(values)
