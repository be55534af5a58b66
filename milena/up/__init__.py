"""Running a cluster of local processes: what `milena up` and its companions do.

The supervisor is on the way of every start, so its modules import next to nothing: no asyncio, no dataclasses, no
typing, no json before the nodes have been spawned.
"""
