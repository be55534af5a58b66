"""Rules without side effects: leader election, replica placement, and changes of a partition's registration."""
