"""``kafka-dump-log``: prints files of log directories (Kafka's DumpLogSegments), in the format of `milena log dump`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milena.commands.dump import Damage, Range, UnknownKind, dump
from milena.scripts.common.failures import ScriptError, failure_of
from milena.scripts.common.options import Option, Parser, number
from milena.storage.files.names import offset_of_file

PARSER: Final = Parser(
    "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
    "corrupt log segment.",
    [
        Option("files", "REQUIRED: Files, separated by commas.", "files"),
        Option("print-data-log", "Print records, too."),
        Option("deep-iteration", "Print records, without their content."),
        Option("skip-record-metadata", "Has no effect."),
        Option("cluster-metadata-decoder", "The files are of the metadata log."),
        Option("offsets-decoder", "The files are of __consumer_offsets."),
        Option("transaction-log-decoder", "The files are of __transaction_state."),
        Option("remote-log-metadata-decoder", "The files are of __remote_log_metadata."),
        Option("share-group-state-decoder", "The files are of __share_group_state."),
        Option("verify-index-only", missing="`milena log dump` shows a damaged index"),
        Option("index-sanity-check", missing="`milena log dump` shows a damaged index"),
        Option("max-message-size", "Has no effect.", "bytes", convert=number),
        Option("max-bytes", "Has no effect.", "bytes", convert=number),
        Option("value-decoder-class", value="class", missing="values are printed as text"),
        Option("key-decoder-class", value="class", missing="keys are printed as text"),
    ],
)
DECODERS: Final = tuple(option.name for option in PARSER.options if option.name.endswith("-decoder"))


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    found.require("files")
    records = found.has("print-data-log", "deep-iteration", *DECODERS)
    for path in found.one("files").split(","):
        print(f"Dumping {path}")
        try:
            lines = dump(path, Range(records=records))
            if path.endswith(".log"):
                print(f"Log starting offset: {offset_of_file(path.rpartition('/')[2])}")
            for line in lines:
                print(line)
        except UnknownKind:
            raise ScriptError(f"Ignoring unknown file {path}") from None
        except Damage as damage:
            print(f"damaged: {damage}")
            return 1
        except BrokenPipeError:
            raise
        except OSError as error:
            error.filename = path
            raise failure_of(error) from None
    return 0
