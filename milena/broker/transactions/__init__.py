"""The transaction coordinator, its markers, and the verification of partitions (KIP-98, KIP-360, KIP-890)."""
