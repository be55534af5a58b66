"""The transaction coordinator, the markers that it writes, and the verification of partitions (KIP-98, KIP-360, KIP-890)."""
