"""Work orders: somebody else cleans a compacted partition in the tier, and its leader checks what comes of it."""
