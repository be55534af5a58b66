"""The work with transactions of a run: independent transactions, producers that are fenced and do not notice, and
members of a group that consume, transform and produce."""
