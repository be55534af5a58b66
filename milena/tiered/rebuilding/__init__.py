"""Rebuilds segment metadata from the files in the tier, for leaders and for access without a broker."""
