"""Rules without side effects: leader elections, replica placement, and changes of a partition's registration."""
