"""Exports into a Delta table, as a separate process whose session has Delta Lake: ``delta_run JARS TIER FOLDER``.

Prints how many rows the table has after a first run, after a run that follows the loss of the last commit, and after
a run without new records.
"""

from __future__ import annotations

import sys
from pathlib import Path

from milena.commands.pipeline.running import DELTA
from milena.pipeline.jobs.export.job import export
from milena.pipeline.session import session


def main(jars: str, tier: str, folder: str) -> None:
    spark = session("local[1]", "delta", {**DELTA, "spark.jars": jars, "spark.log.level": "ERROR"})
    counts = []
    for lose in (True, False, False):
        found = export(spark, {"tier": tier}, {"subscribe": "orders"}, folder, form="delta")
        counts.append(spark.read.format("delta").load(found.table).count())
        if lose:
            Path(folder, "commits", f"{found.commits - 1}.json").unlink()
    print("rows", *counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
