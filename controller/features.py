"""Feature levels: what this node supports, how a cluster starts, and UpdateFeatures (KIP-584, KIP-1022).

Levels of ``metadata.version`` say which records and record versions are written; the names of releases stand for them.
``kraft.version`` is not in the metadata records: with static voters it is 0.
"""
