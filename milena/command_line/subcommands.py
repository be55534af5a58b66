"""The subcommands of `milena`: module, function and description of each."""

from __future__ import annotations

COMMANDS = {
    "up": ("milena.up.command:main", "run a cluster of local processes"),
    "down": ("milena.up.detached:down", "stop a cluster"),
    "status": ("milena.up.detached:status", "show the nodes of a cluster"),
    "logs": ("milena.up.logs:main", "print the logs of a cluster's nodes"),
    "lab": ("milena.steering.command:main", "control a test node: hold requests, cut links, power it off"),
    "reset": ("milena.steering.state_commands:reset", "make a test cluster like a new one"),
    "http": ("milena.console.command:main", "serve a cluster's state and lab commands over HTTP"),
    "console": ("milena.up.http_server:console", "print a link to the console of a running cluster"),
    "snapshot": ("milena.steering.state_commands:snapshot", "write the state of a whole cluster into a folder"),
    "restore": ("milena.steering.state_commands:restore", "return a running cluster to a snapshot"),
    "node": ("milena.commands.node:main", "run one node from its properties file"),
    "config": ("milena.commands.config:main", "check a configuration without starting a node"),
    "container": ("milena.commands.container:main", "run one node as Kafka's container image does"),
    "topic": ("milena.commands.topic:main", "create, list, describe, delete or alter topics, delete records"),
    "group": ("milena.commands.group:main", "list, describe and delete consumer groups, reset their offsets"),
    "transactions": (
        "milena.commands.transactions:main",
        "list and describe transactions, find and abort hanging ones",
    ),
    "elect": ("milena.commands.elect:main", "elect leaders of partitions: the preferred replicas, or uncleanly"),
    "reassign": ("milena.commands.reassign:main", "move replicas to other brokers: start, list, cancel"),
    "broker": ("milena.commands.broker:main", "list and configure brokers, unregister a broker"),
    "produce": ("milena.commands.produce:main", "write lines of standard input as records"),
    "consume": ("milena.commands.consume:main", "print records"),
    "sim": ("milena.commands.sim:main", "run a simulated cluster under load and faults, from a seed"),
    "chaos": ("milena.commands.chaos:main", "run clients and faults against a cluster, and judge what the clients saw"),
    "history": ("milena.commands.history:main", "judge the history of client operations in a file"),
    "scenario": (
        "milena.commands.scenario.command:main",
        "run scenarios of KIPs and of known bugs of Kafka, step by step",
    ),
    "tier": ("milena.commands.tier.command:main", "inspect and verify a remote tier, restore a cluster from it"),
    "pipeline": (
        "milena.commands.pipeline.command:main",
        "jobs on Spark: audit a tier, profile, export, replay topics",
    ),
    "metadata": ("milena.commands.metadata:main", "check and repair the metadata log of a stopped node"),
    "scripts": ("milena.scripts.install:main", "write Kafka's scripts, such as kafka-topics.sh, into a folder"),
    "completion": ("milena.commands.completion:main", "let bash, zsh or fish complete commands and options"),
    "log": ("milena.commands.log:main", "print log files: batches, records, indexes, checkpoints"),
}
