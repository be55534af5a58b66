"""``kafka-storage``: formats log directories (Kafka's StorageTool).

Milena's nodes format empty log directories themselves, so that this is not needed before the first start.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from milena.config.node_config import NodeConfig
from milena.config.sources import from_properties
from milena.config.values import ConfigError
from milena.controller.log.formatting import Formatting, write_bootstrap
from milena.protocol.features import METADATA_VERSION
from milena.protocol.types import NodeId
from milena.protocol.uuids import to_text
from milena.runtime.clock import SystemClock
from milena.runtime.files import RealDisk
from milena.runtime.randomness import Randomness
from milena.scripts.common.failures import ScriptError, failure_of
from milena.scripts.common.options import Found, Option, Parser
from milena.scripts.features_tool import level_text
from milena.storage.files.meta_properties import (
    CorruptMetaProperties,
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)

COMMANDS: Final = ("info", "format", "random-uuid")
META: Final = "meta.properties"
STATIC: Final = "the voters of the quorum are static: name one in controller.quorum.voters"
PARSER: Final = Parser(
    "usage: kafka-storage {info,format,random-uuid} ...\n\nThe Kafka storage tool.",
    [
        Option("config", "REQUIRED for info and format: the configuration file.", "file", short="c"),
        Option("cluster-id", "REQUIRED for format: the id of the cluster.", "id", short="t"),
        Option("ignore-formatted", "Skip directories that are formatted.", short="g"),
        Option("release-version", "The release that sets the levels of features.", "version", short="r"),
        Option("feature", "The level of a feature, as name=level.", "name=level", short="f"),
        Option("standalone", "Format the only controller of a new cluster.", short="s"),
        Option("no-initial-controllers", "Format a node without the voters of the cluster.", short="N"),
        Option("initial-controllers", value="controllers", short="I", missing=STATIC),
        Option("add-scram", value="credential", short="S", missing="there is no SASL"),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    if len(found.words) != 1 or found.words[0] not in COMMANDS:
        raise found.wrong(f"kafka-storage: error: invalid choice: choose from {', '.join(COMMANDS)}")
    command = found.words[0]
    if command == "random-uuid":
        print(random_uuid())
        return 0
    for option, short in (("config", "c"), ("cluster-id", "t"))[: 2 if command == "format" else 1]:
        if not found.has(option):
            raise found.wrong(f"kafka-storage: error: argument --{option}/-{short} is required")
    config = config_of(found)
    try:
        return format_all(found, config) if command == "format" else show(config)
    except OSError as error:
        raise failure_of(error) from None


def random_uuid() -> str:
    """Return a new id; as in Kafka none that begins with a dash, which would look like an option."""
    random = Randomness()
    while True:
        text = to_text(random.uuid())
        if not text.startswith("-"):
            return text


def config_of(found: Found) -> NodeConfig:
    """Return the configuration in the file. Raises ScriptError."""
    path = found.one("config")
    try:
        with open(path, "rb") as file:
            return NodeConfig(from_properties(file.read(), path))
    except OSError as error:
        raise ScriptError(error.filename, "java.nio.file.NoSuchFileException") from None
    except ConfigError as error:
        raise ScriptError(str(error)) from None


def directories_of(config: NodeConfig) -> list[str]:
    """Return the log directories, and that of the metadata log."""
    return sorted({*config.log_dirs, config.metadata_log_dir})


def properties_in(directory: str) -> MetaProperties | None:
    """Return a directory's cluster and node; None if it is not formatted. Raises OSError, ScriptError."""
    try:
        with open(f"{directory}/{META}", "rb") as file:
            return decode_meta_properties(file.read())
    except FileNotFoundError:
        return None
    except CorruptMetaProperties as error:
        raise ScriptError(f"{directory}/{META}: {error}") from None


def format_all(found: Found, config: NodeConfig) -> int:
    """Format the directories that are not formatted. Raises OSError, ScriptError."""
    cluster_id = found.one("cluster-id")
    check_voters(found, config)
    formatting = formatting_of(found, cluster_id)
    metas = {directory: properties_in(directory) for directory in directories_of(config)}
    for directory, meta in metas.items():
        check(directory, meta, cluster_id, config)
    formatted = [directory for directory, meta in metas.items() if meta is not None]
    if formatted and not found.has("ignore-formatted"):
        raise ScriptError(
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore this directory and "
            "format the others."
        )
    if len(formatted) == len(metas):
        print("All of the log directories are already formatted.")
        return 0
    disk, random = RealDisk(), Randomness()
    version = level_text(METADATA_VERSION, formatting.features[METADATA_VERSION])
    for directory in sorted(metas, key=lambda one: one == config.metadata_log_dir):
        if metas[directory] is not None:
            continue
        is_metadata = directory == config.metadata_log_dir
        print(
            f"Formatting {'metadata' if is_metadata else 'data'} directory {directory} with metadata.version {version}."
        )
        os.makedirs(directory, exist_ok=True)
        if is_metadata and config.is_controller:
            write_bootstrap(disk, directory, formatting, SystemClock().time_ms())
        properties = MetaProperties(cluster_id, NodeId(config.node_id), random.uuid())
        disk.write_atomic(f"{directory}/{META}", encode_meta_properties(properties))
        disk.sync_folder(os.path.dirname(directory) or "/")
    disk.close()
    return 0


def formatting_of(found: Found, cluster_id: str) -> Formatting:
    """Raises ScriptError."""
    try:
        return Formatting.parse(
            cluster_id=cluster_id, features=found.all("feature"), release_version=found.one("release-version")
        )
    except ConfigError as error:
        raise ScriptError(str(error)) from None


def check_voters(found: Found, config: NodeConfig) -> None:
    """Check the options about the quorum's voters as Kafka does. Raises ScriptError."""
    if found.has("standalone") and found.has("no-initial-controllers"):
        raise found.wrong(
            "kafka-storage: error: argument --no-initial-controllers/-N: not allowed with --standalone/-s"
        )
    if found.has("standalone") and not config.is_controller:
        raise ScriptError("You can only use --standalone on a controller.")
    if found.has("standalone") and config.quorum_voters:
        raise ScriptError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    if config.is_controller and not config.quorum_voters and not found.has("standalone", "no-initial-controllers"):
        raise ScriptError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )


def check(directory: str, meta: MetaProperties | None, cluster_id: str, config: NodeConfig) -> None:
    """Raise ScriptError if a directory belongs to another cluster or node."""
    if meta is not None and meta.cluster_id != cluster_id:
        raise ScriptError(
            f"Invalid cluster.id in: {directory}/{META}. Expected {cluster_id}, but read {meta.cluster_id}",
            "java.lang.RuntimeException",
        )
    if meta is not None and meta.node_id != config.node_id:
        raise ScriptError(
            f"Stored node id {meta.node_id} doesn't match previous node id {config.node_id} in: {directory}/{META}",
            "java.lang.RuntimeException",
        )


def show(config: NodeConfig) -> int:
    """Print the log directories and what is wrong with them. Return 1 if anything is. Raises OSError, ScriptError."""
    found, problems, first = [], [], None
    for directory in directories_of(config):
        if not os.path.isdir(directory):
            problems.append(f"{directory} {'is not a directory' if os.path.exists(directory) else 'does not exist'}")
            continue
        found.append(directory)
        meta = properties_in(directory)
        if meta is None:
            problems.append(f"{directory} is not formatted.")
        elif first is None:
            first = meta
        elif meta.cluster_id != first.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif meta.node_id != first.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    print_list("Found log director", "y:", "ies:", found)
    if first is not None:
        directory_id = f"directory.id={to_text(first.directory_id)}, " if first.directory_id else ""
        print(f"Found metadata: {{cluster.id={first.cluster_id}, {directory_id}node.id={first.node_id}, version=1}}\n")
    print_list("Found problem", ":", "s:", problems)
    return 1 if problems else 0


def print_list(title: str, one: str, several: str, items: Sequence[str]) -> None:
    if items:
        print("\n".join([f"{title}{one if len(items) == 1 else several}", *(f"  {item}" for item in items), ""]))
