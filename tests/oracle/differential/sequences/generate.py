"""Makes a script from a seed: it creates topics, sends requests of one subject or of all, and describes everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.oracle.differential.sequences import access, admin, configs, groups, logs, transactions
from tests.oracle.differential.sequences.script import Step
from tests.oracle.differential.sequences.world import World

Weighted = Sequence[tuple[int, Callable[[World], Step | list[Step]]]]
SUBJECTS: Final[dict[str, Weighted]] = {
    "logs": [*logs.STEPS, (2, admin.create), (1, admin.delete), (2, configs.incrementally)],
    "groups": [*groups.STEPS, (1, admin.delete), (1, admin.create), (1, admin.create_partitions)],
    "transactions": [*transactions.STEPS, (1, admin.delete), (1, groups.rebalance), (1, groups.delete_groups)],
    "configs": [*configs.STEPS, (8, logs.produce), (3, logs.fetch), (2, admin.create), (1, admin.delete)],
    "admin": [*admin.STEPS, (6, logs.produce), (3, logs.list_offsets), (2, configs.incrementally)],
    "access": [*access.STEPS, (1, admin.create), (1, configs.incrementally)],
    "all": [*access.STEPS, *logs.STEPS, *groups.STEPS, *configs.STEPS, *admin.STEPS],
}
OFTEN: Final = ("logs", "logs", "groups", "groups", "transactions", "transactions", "configs", "admin", "access", "all")


def script(seed: int, number: int) -> list[Step]:
    """Return the script with this number. It is the same one in each call."""
    world = World(f"{seed}/{number}")
    subject = world.one(OFTEN)
    steps = SUBJECTS[subject]
    made = [admin.create(world, surely=True)]
    weights = [weight for weight, _ in steps]
    for _ in range(world.upto(20, 6)):
        ((_, make),) = world.dice.choices(steps, weights)
        steps_made = make(world)
        made += steps_made if isinstance(steps_made, list) else [steps_made]
    made += transactions.looks(world) if subject == "transactions" else []
    made += logs.looks(world)
    made += groups.looks(world) if subject in ("groups", "transactions", "all") else []
    made += admin.looks(world) + configs.looks(world) if subject in ("configs", "admin", "all") else []
    return made
