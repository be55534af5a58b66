"""What a leader cleans of its partition's segments in the tier, and when (KIP-1272, a draft; the form is ours)."""
