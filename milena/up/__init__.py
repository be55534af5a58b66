"""Clusters of local processes: `milena up`, `down`, `status` and `logs`.

Every start waits for the supervisor, so its modules import next to nothing: no asyncio, dataclasses, typing or json
before the nodes have been spawned.
"""
