"""Compaction in the tier: which segments a leader cleans, and when (KIP-1272, a draft; the format is Milena's own)."""
