"""`milena pipeline`: audit, profile and other jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from milena.command_line.errors import UserError
from milena.command_line.options import CommandLine, Option, Positional, Values, chosen, key_value, port_number
from milena.commands.tier.opening import PLACES

Body: TypeAlias = Callable[[Values], int]
MASTER = "local[*]"
DEMO = "milena-demo"
SPARK = (
    Option("--master", "the Spark cluster (default: this machine)", "URL", default=MASTER),
    Option("--conf", "a Spark setting", "K=V", many=True, convert=key_value),
)
REMOVED: Final = {
    "compact": "`milena pipeline compact` was removed: the leader of a partition compacts it in the tier itself "
    "(docs/decisions/2026-11-25-no-work-orders.md)",
    "history": "`milena pipeline history` was removed: `milena history check FILE` judges histories of any length "
    "(docs/decisions/2026-11-25-histories-in-one-process.md)",
}
"""Jobs of earlier versions, with a message that says what replaces them."""
TOPICS = Positional("TOPIC", "topics (default: all)", many=True)

BOOTSTRAP = Option(
    "--bootstrap", "the brokers, as HOST:PORT,...: also read records that are not in the tier", "LIST", short="-b"
)


def out(default: str) -> Option:
    return Option("--out", "the folder for the results and the page", "DIR", default=default)


AUDIT = CommandLine(
    "pipeline audit",
    "Audit a tier on Spark: read every object and compare it with the metadata topic and the log's "
    "leader epochs. Finds\n"
    "gaps, overlaps, orphans, wrong checksums and unread segments; reports sizes and ages by topic. Nothing is\n"
    "changed. The exit code is 1 if there are findings. An interrupted audit continues where it stopped.",
    [
        *PLACES,
        out("milena-audit"),
        Option(
            "--price", "price of a GiB per month, to report the cost of unread data", "N", default=0.0, convert=float
        ),
        *SPARK,
    ],
    [TOPICS],
    ["milena pipeline audit --dir milena-data", "milena pipeline audit --tier s3://bucket/prefix --out audit"],
)
PROFILE = CommandLine(
    "pipeline profile",
    "Profile topics on Spark: sizes, rates over time, skew of keys and partitions, late records. Reads the tier; with\n"
    "-b also what is only on the brokers. An interrupted profile continues where it stopped.",
    [*PLACES, BOOTSTRAP, out("milena-profile"), *SPARK],
    [TOPICS],
    ["milena pipeline profile", "milena pipeline profile orders -b 127.0.0.1:9092 --out orders-profile"],
)
EXPORT = CommandLine(
    "pipeline export",
    "Append new records of topics to a table, each record once, however often the job is stopped and started.\n"
    "Keys and values are bytes, string, or json:SCHEMA; what does not match is kept in keyBytes, valueBytes.",
    [
        *PLACES,
        BOOTSTRAP,
        out("milena-export"),
        Option("--key", "format of the keys", "FORM", default="bytes"),
        Option("--value", "format of the values", "FORM", default="bytes"),
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
    "Write the records of topics to topics of the same names in another cluster, with their keys, headers,\n"
    "timestamps and partitions, in the order of each partition. An interrupted replay continues where it stopped.",
    [
        Option("--to", "brokers of the other cluster, as HOST:PORT,...", "LIST"),
        Option("--rate", "maximum number of records per second", "N", default=0, convert=int),
        *PLACES,
        BOOTSTRAP,
        out("milena-replay"),
        *SPARK,
    ],
    [TOPICS],
    ["milena pipeline replay orders --to 127.0.0.1:19092 --rate 10000"],
)
LOOK = CommandLine(
    "pipeline look",
    "Run audit and profile on a cluster's tier, and print where their pages are.",
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
        Option("--records", "number of records in each topic", "N", default=60_000, convert=int),
    ],
    examples=["milena pipeline demo", "milena pipeline demo --port 19092 --dir /tmp/demo"],
)


def main(arguments: Sequence[str]) -> int:
    commands: dict[str, tuple[CommandLine, Body]] = {
        "audit": (AUDIT, _audit),
        "profile": (PROFILE, _profile),
        "export": (EXPORT, _export),
        "replay": (REPLAY, _replay),
        "demo": (DEMO_LINE, _demo),
        "look": (LOOK, _look),
    }
    if arguments and arguments[0] in REMOVED:
        raise UserError(REMOVED[arguments[0]])
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


def _export(values: Values) -> int:
    from milena.commands.pipeline.running import export

    return export(values)


def _replay(values: Values) -> int:
    from milena.commands.pipeline.running import replay

    return replay(values)


def _demo(values: Values) -> int:
    from milena.commands.pipeline.demo import demo

    return demo(values)


def _look(values: Values) -> int:
    from milena.commands.pipeline.running import look

    return look(values)
