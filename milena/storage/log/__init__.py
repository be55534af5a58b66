"""One partition's log: open, append, read, truncate, recover."""
