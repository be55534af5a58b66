"""Rules without side effects: who leads, where replicas go, what a change of a partition becomes."""
