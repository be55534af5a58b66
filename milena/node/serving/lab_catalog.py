"""All lab commands: what they do, their arguments, and how to undo them. A new command is entered here; a test compares
with what nodes serve and with the functions' parameters."""

from __future__ import annotations

from milena.node.serving.lab_descriptions import Argument, LabCommandDescription

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

BROKER: Final = ("broker",)
CONTROLLER: Final = ("controller",)

RULES: Final = "Fault rules"
LINKS: Final = "Links"
STATE: Final = "State"
WORK: Final = "Log and tier"
MACHINE: Final = "Disks, clock and tier"
RESET: Final = "Reset"
PROCESS: Final = "Process"
GROUPS: Final = {
    RULES: "for requests that a node receives, and its responses",
    LINKS: "with a node's peers",
    STATE: "of a node",
    WORK: "of a broker: what it does from time to time, now",
    MACHINE: "of a node: faults",
    RESET: "of a cluster, and snapshots: the steps of `LocalCluster.reset`, `snapshot` and `restore`",
    PROCESS: "of a node; works without lab mode, too, except power_off",
}
"""The groups in the order of the documentation."""

TOPIC: Final = Argument("topic", "string", "the topic's name")
PARTITION: Final = Argument("partition", "integer", "the partition's number")
RULE: Final = Argument("rule", "integer", "the rule's number")

SIDE: Final = Argument(
    "side",
    "string",
    "whether to act before the request is handled, or on its response",
    "request",
    ("request", "response"),
)
MATCHES: Final = (
    Argument("api", "string", "the API's name as in Kafka's ApiKeys, such as PRODUCE or AlterPartition", None),
    Argument("peer", "string or integer", "a node's id, or the beginning of a client id", None),
    Argument("client_id", "string", "the whole client id", None),
    Argument("node", "integer", "the id of the broker or controller that sends the request", None),
    Argument("listener", "string", "the listener's name, such as PLAINTEXT", None),
    Argument("topic", "string", "a topic that the request names", None),
    Argument("partition", "integer", "a partition of that topic", None),
    Argument("group", "string", "a group that the request names", None),
    Argument("transactional_id", "string", "a transactional id that the request names", None),
)
ENDS: Final = (
    Argument("every", "integer", "act on each n-th matching request only", None),
    Argument("probability", "number", "act on each of these with this probability, from 0 to 1", None),
    Argument("seed", "integer", "draw from this seed, so that each run draws the same", None),
    Argument("count", "integer", "act on this many requests at most", None),
)
RULE_NUMBER: Final = "`rule`, the rule's number"
UNDO_RULE: Final = "`release` with its number, or `clear`"


def _rule(name: str, summary: str, *own: Argument, sides: bool = True) -> LabCommandDescription:
    arguments = (*own, *MATCHES, *ENDS, *((SIDE,) if sides else ()))
    return LabCommandDescription(name, summary, arguments, returns=RULE_NUMBER, undo=UNDO_RULE, group=RULES)


_RULES: Final = (
    _rule("hold", "Hold matching requests, or their responses, until the rule is released."),
    _rule(
        "delay",
        "Handle matching requests, or send their responses, later.",
        Argument("ms", "number", "the delay in milliseconds"),
    ),
    _rule("drop", "Drop matching requests, or their responses; the connection stays open."),
    _rule("disconnect", "Close the connection of matching requests, before or after they are handled."),
    _rule(
        "fail",
        "Answer matching requests with an error.",
        Argument(
            "error",
            "string or integer",
            "the error's name or number, such as NOT_LEADER_OR_FOLLOWER; with `topic`, only its partitions get it in "
            "Produce, Fetch, ListOffsets, OffsetCommit, OffsetForLeaderEpoch and DeleteRecords",
        ),
    ),
    _rule(
        "duplicate",
        "Handle matching requests twice, as if they were sent again; the client gets the second response.",
        sides=False,
    ),
    _rule("trace", "Record matching requests and their responses; later rules still apply.", sides=False),
    LabCommandDescription(
        "traced",
        "List what a trace has recorded, the last 1,000.",
        (RULE, Argument("take", "boolean", "whether the trace forgets them", False)),
        returns="a list with `api`, `version`, `client_id`, `request`, `response`, the lengths of their bodies "
        "`request_bytes` and `response_bytes`, and `at` and `answered_at` in seconds of the node's monotonic clock",
        group=RULES,
    ),
    LabCommandDescription(
        "wait",
        "Wait until a rule has this many hits.",
        (
            RULE,
            Argument("hits", "integer", "the number of hits", 1),
            Argument("seconds", "number", "the longest time to wait; after that it is an error", 30.0),
        ),
        returns="the rule, as `rules` lists it",
        group=RULES,
    ),
    LabCommandDescription(
        "release",
        "Let the requests or responses that a rule holds continue, in order, and remove the rule.",
        (
            RULE,
            Argument("first", "integer", "only the first n of them, and keep the rule", None),
        ),
        returns="`hits` of the rule, and how many were `released`",
        undo="add the rule again",
        group=RULES,
    ),
    LabCommandDescription(
        "rules",
        "List the rules with their hits and held requests.",
        returns="a list with `rule`, `command`, the arguments that were given, `hits` and `held`",
        group=RULES,
    ),
    LabCommandDescription(
        "clear",
        "Release all rules.",
        returns="how many requests were `released`",
        undo="add the rules again",
        group=RULES,
    ),
)

_CUT_LINKS: Final = "the links that are cut: `peer`, `direction`, and the number of their `connections`"
_LINKS: Final = (
    LabCommandDescription(
        "cut",
        "Cut the link with a peer: no data passes, and no connection is closed.",
        (
            Argument("peer", "string or integer", "a node's id, or the beginning of a client id"),
            Argument("direction", "string", "data from the peer, to it, or both", "both", ("in", "out", "both")),
        ),
        returns=_CUT_LINKS,
        undo="`heal` with the same peer",
        group=LINKS,
    ),
    LabCommandDescription(
        "heal",
        "Let the data pass that a cut has held, and new data.",
        (Argument("peer", "string or integer", "the peer; all without it", None),),
        returns=_CUT_LINKS,
        undo="`cut`",
        group=LINKS,
    ),
    LabCommandDescription("links", "List the links that are cut.", returns=_CUT_LINKS, group=LINKS),
)

_STATE: Final = (
    LabCommandDescription(
        "help", "Describe the commands of this node.", returns="a command's description by its name", group=STATE
    ),
    LabCommandDescription("ready", "Tell whether the node serves.", returns="`ready`", group=STATE),
    LabCommandDescription(
        "image",
        "Show the metadata that the node has applied.",
        returns="`offset`, `epoch`, and a `digest` of all of it",
        group=STATE,
    ),
    LabCommandDescription(
        "observe",
        "List what has changed since the observer's last round: replicas of a broker, registrations of a controller.",
        (
            Argument("session", "string", "the observer's name for what it has seen"),
            Argument("from", "integer", "where to continue the round; a call looks at 500 partitions", 0),
            Argument("end", "boolean", "whether to forget the session", False),
        ),
        returns="`rows` with topic, partition and the values that docs/http.md lists, what is `gone`, and the `next` "
        "`from`, null at the end of the round; in the `first` round of a session all is listed",
        group=STATE,
    ),
    LabCommandDescription(
        "brokers",
        "List the registered brokers.",
        returns="`epoch`, `fenced`, `in_controlled_shutdown` and `rack` by broker id",
        nodes=CONTROLLER,
        group=STATE,
    ),
    LabCommandDescription(
        "partitions",
        "List the partitions as registered.",
        (Argument("topic", "string", "the topic's name; all topics without it", None),),
        returns="leader, epochs, replicas, ISR, ELR and reassignment by `TOPIC-PARTITION`",
        nodes=CONTROLLER,
        group=STATE,
    ),
    LabCommandDescription(
        "describe_partition",
        "Describe the replica here.",
        (TOPIC, PARTITION),
        returns="role, ISR, offsets, leader epochs, and the followers or the fetcher",
        nodes=BROKER,
        group=STATE,
    ),
    LabCommandDescription(
        "read_log",
        "Read records of the log here.",
        (
            TOPIC,
            PARTITION,
            Argument("from", "integer", "the first offset", 0),
            Argument("max", "integer", "how many records at most", 1000),
            Argument(
                "markers", "boolean", "also those of ended transactions, with the value `COMMIT` or `ABORT`", False
            ),
        ),
        returns="a list of `[offset, value, leader epoch]`",
        nodes=BROKER,
        group=STATE,
    ),
    LabCommandDescription(
        "remote_segments",
        "List the partition's segments in the tier as this broker knows them.",
        (TOPIC, PARTITION),
        returns="a list by start offset, with id, offsets, epochs, state, size and broker",
        nodes=BROKER,
        group=STATE,
    ),
    LabCommandDescription(
        "remote_reads",
        "List the segments in the tier from which this broker has served fetches.",
        returns="a list of ids, the last one last",
        nodes=BROKER,
        group=STATE,
    ),
    LabCommandDescription(
        "cleaner_offsets",
        "Show the cleaner-offset map with which this leader starts to clean.",
        (TOPIC, PARTITION),
        returns="a list of `[leader epoch, offset]`",
        nodes=BROKER,
        group=STATE,
    ),
    LabCommandDescription(
        "fetchers",
        "List the partitions that this broker follows.",
        returns="a list with topic, partition, state, offset, leader and lag",
        nodes=BROKER,
        group=STATE,
    ),
    LabCommandDescription(
        "follower_transitions",
        "List the changes of followers' states, the last 10,000.",
        (Argument("since", "integer", "only those with greater numbers", 0),),
        returns="a list with `number`, `at` in seconds of the node's monotonic clock, `topic`, `partition`, `from`, "
        "`to`, `event`, `offset`, `leader_epoch`, and when BuildingRemoteLogAux ends the `segment` with the epochs",
        nodes=BROKER,
        group=STATE,
    ),
    LabCommandDescription(
        "transactions",
        "Show the transactional ids that this broker coordinates: how many by state, and some of them.",
        (Argument("since", "integer", "also the transitions with greater numbers, of the last 1,000", None),),
        returns="`counts` by state, the `total`, how many partitions are `loading`, the `ids`: at most 100 with an "
        "open transaction, oldest first, at most 100 that are prepared, and the 100 others that changed last; the "
        "`transitions`, and among them what was refused to fenced producers; and the `last` number",
        nodes=BROKER,
        group=STATE,
    ),
    LabCommandDescription(
        "metric",
        "Read a metric of a topic.",
        (Argument("name", "string", "its name at the metrics endpoint"), TOPIC),
        returns="`value`",
        nodes=BROKER,
        group=STATE,
    ),
    LabCommandDescription(
        "troubles",
        "Show the wall clock, and count what failed since the node's start.",
        returns="`wall_ms`, and the numbers of failed and delayed calls of disk and tier, and of lost segments",
        group=STATE,
    ),
    LabCommandDescription(
        "faults",
        "List the faults of disks, clock and tier that are set.",
        returns="a list with the `command` and its arguments",
        group=STATE,
    ),
    LabCommandDescription(
        "lost_objects",
        "List the objects that `break_tier` with `lose` has removed.",
        returns="a list of paths in the tier",
        nodes=BROKER,
        group=STATE,
    ),
)

NOT_UNDONE: Final = "it cannot be undone"
TIER_BOUNDS: Final = "`log_start_offset`, `local_log_start_offset` and `highest_offset_in_remote_storage`"


def _in_tier(name: str, summary: str) -> LabCommandDescription:
    """One job of a leader in the tier."""
    return LabCommandDescription(
        name,
        f"{summary[:-1]}; only on the leader.",
        (TOPIC, PARTITION),
        returns=TIER_BOUNDS,
        undo=NOT_UNDONE,
        nodes=BROKER,
        group=WORK,
    )


_WORK: Final = (
    LabCommandDescription(
        "roll",
        "Roll a new segment of the log here.",
        (TOPIC, PARTITION),
        returns="`base_offset` of the new segment",
        undo=NOT_UNDONE,
        nodes=BROKER,
        group=WORK,
    ),
    LabCommandDescription(
        "flush",
        "Flush the log here to the disk, and write the broker's checkpoints.",
        (TOPIC, PARTITION),
        returns="`recovery_point`",
        undo=NOT_UNDONE,
        nodes=BROKER,
        group=WORK,
    ),
    LabCommandDescription(
        "retain",
        "Delete expired local segments; `expire` does so in the tier.",
        (
            Argument("topic", "string", "the topic's name; all logs here without it", None),
            Argument("partition", "integer", "the partition's number; all of the topic without it", None),
        ),
        returns="how many were deleted by `TOPIC-PARTITION`",
        undo=NOT_UNDONE,
        nodes=BROKER,
        group=WORK,
    ),
    LabCommandDescription(
        "compact",
        "Clean the closed segments of a compacted log here, at any dirty ratio; `clean` does so in the tier.",
        (TOPIC, PARTITION),
        returns="`cleaned_to`, the first offset that is not cleaned or null, and the figures of the round",
        undo=NOT_UNDONE,
        nodes=BROKER,
        group=WORK,
    ),
    _in_tier("copy", "Copy the closed segments to the tier that the leader has not copied yet."),
    _in_tier("expire", "Delete expired segments of the partition in the tier, and those that it no longer needs."),
    _in_tier("clean", "Clean a compacted partition in the tier, at any dirty ratio."),
    LabCommandDescription(
        "tiering",
        "Do all work of this replica in the tier: a leader copies, expires and cleans, a follower learns of copies.",
        (TOPIC, PARTITION),
        returns=TIER_BOUNDS,
        undo=NOT_UNDONE,
        nodes=BROKER,
        group=WORK,
    ),
    LabCommandDescription(
        "busy",
        "List what the broker has not finished: copies, expirations and cleanings, followers, changes of the ISR.",
        returns="`reasons`, a list of sentences that is empty if the broker is idle, and `metadata_offset`",
        nodes=BROKER,
        group=WORK,
    ),
    LabCommandDescription(
        "wait_idle",
        "Wait until the broker has finished everything that `busy` lists.",
        (Argument("seconds", "number", "the longest time to wait; after that it is an error", 30.0),),
        returns="what `busy` returns",
        nodes=BROKER,
        group=WORK,
    ),
)

RESTARTED: Final = "restart the node"
_MACHINE: Final = (
    LabCommandDescription(
        "fail_disk",
        "Let every call on a log directory's disk fail.",
        (Argument("path", "string", "the log directory"),),
        returns="the directory that is `failing`",
        undo=RESTARTED,
        group=MACHINE,
    ),
    LabCommandDescription(
        "fill_disk",
        "Let a log directory be full (ENOSPC).",
        (Argument("path", "string", "the log directory; the last one without it", None),),
        returns="the directory that is `full`",
        undo=RESTARTED,
        group=MACHINE,
    ),
    LabCommandDescription(
        "slow_disk",
        "Delay each sync in a log directory.",
        (
            Argument("ms", "number", "the delay in milliseconds; 0 ends it"),
            Argument("path", "string", "the log directory; all without it", None),
        ),
        returns="the directories that are `slow`, and `ms`",
        undo="the same command with ms=0",
        group=MACHINE,
    ),
    LabCommandDescription(
        "jump_clock",
        "Shift the node's wall clock against the machine's clock.",
        (Argument("ms", "integer", "milliseconds ahead; negative: behind; 0 ends it"),),
        returns="`time_ms`, the time of the node's clock",
        undo="the same command with ms=0",
        group=MACHINE,
    ),
    LabCommandDescription(
        "break_tier",
        "Let the remote tier fail, be slow, lose objects or give wrong answers.",
        (
            Argument("away", "boolean", "whether each call fails", False),
            Argument("delay_ms", "number", "how long each call takes longer, in milliseconds", 0),
            Argument("lose", "number", "the share (0 to 1) of new segments whose .log object is removed", 0),
            Argument(
                "odd",
                "string",
                "the wrong answer of a store of fsspec",
                "",
                ("", "page", "json", "value", "cancelled", "short", "sizes"),
            ),
        ),
        returns="the arguments",
        undo="the same command without arguments; lost objects stay lost",
        nodes=BROKER,
        group=MACHINE,
    ),
)

_RESET: Final = (
    LabCommandDescription(
        "mend",
        "End all rules, cut links and delays, and the faults of clock and tier. Clients whose requests are held are "
        "disconnected.",
        returns="`needs_restart`, whether a log directory fails or is full",
        undo="inject the faults again",
        group=RESET,
    ),
    LabCommandDescription(
        "reset",
        "Remove all topics, dynamic configurations, quotas and credentials.",
        returns="the `offset` of the metadata after it, and the ids of the removed `topics`",
        undo=NOT_UNDONE,
        nodes=CONTROLLER,
        group=RESET,
    ),
    LabCommandDescription(
        "settle",
        "Apply the metadata of a reset, and forget the tier.",
        (Argument("offset", "integer", "the metadata offset that `reset` returned"),),
        returns="`erasing`, the ids of topics whose segments were being deleted from the tier; null without a tier",
        undo=NOT_UNDONE,
        nodes=BROKER,
        group=RESET,
    ),
    LabCommandDescription(
        "erase_tier",
        "Delete all segments of topics from the tier.",
        (Argument("topics", "array", "the ids of the topics"),),
        returns="how many were `deleted`",
        undo=NOT_UNDONE,
        nodes=BROKER,
        group=RESET,
    ),
    LabCommandDescription(
        "flush_all",
        "Sync all logs, and write the broker's checkpoints.",
        returns="the number of `logs`",
        undo=NOT_UNDONE,
        nodes=BROKER,
        group=RESET,
    ),
    LabCommandDescription(
        "halt",
        "Stop serving and close all files without writing to them; the process stays.",
        returns="`halted`",
        undo="`reopen`",
        group=RESET,
    ),
    LabCommandDescription(
        "reopen",
        "Serve again after `halt`, with what is in the log directories now.",
        returns="`ready`, when the node serves",
        undo="`halt`",
        group=RESET,
    ),
)

_PROCESS: Final = (
    LabCommandDescription(
        "start", "Start a node that is down.", returns="nothing", undo="`stop`", group=PROCESS, of_process=True
    ),
    LabCommandDescription(
        "stop", "Shut the node down cleanly.", returns="nothing", undo="`start`", group=PROCESS, of_process=True
    ),
    LabCommandDescription(
        "kill",
        "End the process by SIGKILL: written data is kept.",
        returns="nothing",
        undo="`start`",
        group=PROCESS,
        of_process=True,
    ),
    LabCommandDescription(
        "power_off",
        "End the process and leave the files as a power loss would: unflushed data is lost.",
        returns="nothing",
        undo="`start`; the lost data does not come back",
        group=PROCESS,
        of_process=True,
    ),
    LabCommandDescription(
        "wipe",
        "Empty the log directories of a node that is down.",
        returns="nothing",
        undo=NOT_UNDONE,
        group=PROCESS,
        of_process=True,
    ),
    LabCommandDescription(
        "pause",
        "Stop the process by SIGSTOP; its connections stay open.",
        returns="nothing",
        undo="`resume`",
        group=PROCESS,
        of_process=True,
    ),
    LabCommandDescription(
        "resume",
        "Continue a paused process.",
        returns="nothing",
        undo="`pause`",
        group=PROCESS,
        of_process=True,
    ),
)

CATALOG: Final = {one.name: one for one in (*_RULES, *_LINKS, *_STATE, *_WORK, *_MACHINE, *_RESET, *_PROCESS)}
"""All commands by name."""
