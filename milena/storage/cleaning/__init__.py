"""Log compaction (KIP-58, KIP-280, KIP-534): of several records with one key, the last is kept."""
