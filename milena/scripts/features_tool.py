"""``kafka-features``: describe and change the levels of features (Kafka's FeatureCommand)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from milena.client import replicas
from milena.client.cluster import Cluster
from milena.protocol.features import METADATA_VERSION, metadata_version_names, metadata_version_of
from milena.runtime.numbers import whole
from milena.scripts.common.connection import BOOTSTRAP, BOOTSTRAP_CONTROLLER, COMMAND_CONFIG, client_of, run
from milena.scripts.common.failures import ScriptError, text_of
from milena.scripts.common.options import Found, Option, Parser

COMMANDS: Final = ("describe", "upgrade", "downgrade", "disable")
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""FeatureUpdate.UpgradeType."""
PARSER: Final = Parser(
    "usage: kafka-features [options] {describe,upgrade,downgrade,disable} ...\n\n"
    "This tool manages feature flags in Kafka.",
    [
        BOOTSTRAP,
        BOOTSTRAP_CONTROLLER,
        COMMAND_CONFIG,
        Option("feature", "A feature and its level, as name=level; may be repeated.", "name=level"),
        Option("release-version", "Change metadata.version to that of a release.", "version"),
        Option("metadata", "DEPRECATED: use --release-version.", "version"),
        Option("unsafe", "Downgrade even if metadata is lost."),
        Option("dry-run", "Validate the change, but do not make it."),
        Option("node-id", missing="connect to that node", value="id"),
    ],
)


def main(arguments: Sequence[str]) -> int:
    found = PARSER.parse(arguments)
    if len(found.words) != 1 or found.words[0] not in COMMANDS:
        raise found.wrong(f"kafka-features: error: invalid choice: choose from {', '.join(COMMANDS)}")
    client = client_of(found)
    if found.words == ["describe"]:
        return run(client, describe, "describeFeatures")
    return run(client, partial(change, found.words[0], found, levels_of(found.words[0], found)), "updateFeatures")


async def describe(cluster: Cluster) -> int:
    features = await replicas.describe_features(cluster)
    epoch = str(features.epoch) if features.epoch >= 0 else "-"
    for name, levels in sorted(features.supported.items()):
        low, high, final = (level_text(name, level) for level in (*levels, features.finalized.get(name, 0)))
        print(
            f"Feature: {name:<40}  SupportedMinVersion: {low:<15}  SupportedMaxVersion: {high:<15}"
            f"  FinalizedVersionLevel: {final:<15}  Epoch: {epoch}"
        )
    return 0


def level_text(name: str, level: int) -> str:
    """Return a level as text; those of metadata.version have names."""
    if name != METADATA_VERSION:
        return str(level)
    names = {number: text for text, number in metadata_version_names().items() if "-IV" in text}
    return names.get(level, f"UNKNOWN [{level}]")


def levels_of(command: str, found: Found) -> dict[str, int]:
    """Return the levels that the options name. Raises ScriptError."""
    levels: dict[str, int] = {}
    for text in found.all("feature"):
        name, equals, level = text.partition("=")
        number = 0 if command == "disable" and not equals else whole(level.strip())
        if number is None:
            why = f"unable to parse {level} as a short." if equals else "equals sign not found."
            raise ScriptError(f"Can't parse feature=level string {text}: {why}")
        if name.strip() in levels:
            raise ScriptError(f"Feature {name.strip()} was specified more than once.")
        levels[name.strip()] = number
    release = found.one("release-version")
    if release and (levels or found.has("metadata")):
        raise ScriptError("Can not specify `release-version` with other feature flags.")
    if release := release or found.one("metadata"):
        try:
            levels[METADATA_VERSION] = metadata_version_of(release)
        except ValueError as error:
            raise ScriptError(f"Unknown metadata.version '{release}'. {error}") from None
    if not levels:
        raise ScriptError(f"You must specify at least one feature to {command}")
    return levels


async def change(command: str, found: Found, levels: dict[str, int], cluster: Cluster) -> int:
    kind = UPGRADE
    if command != "upgrade":
        kind = UNSAFE_DOWNGRADE if found.has("unsafe") else SAFE_DOWNGRADE
    dry = found.has("dry-run")
    outcomes = await replicas.update_features(cluster, levels, kind, dry_run=dry)
    failures = 0
    for name, error in sorted(outcomes.items()):
        if error is None:
            result = "disabled" if command == "disable" else f"{command}d to {levels[name]}"
            print(f"{name} {'can be' if dry else 'was'} {result}.")
        else:
            failures += 1
            wanted = f"disable {name}" if command == "disable" else f"{command} {name} to {levels[name]}"
            print(f"{'Can not' if dry else 'Could not'} {wanted}. {text_of(error)}")
    if failures:
        raise ScriptError(f"{failures} out of {len(outcomes)} operation(s) failed.")
    return 0
