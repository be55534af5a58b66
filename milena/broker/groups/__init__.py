"""The coordinator of classic consumer groups: state machines without I/O, and the shards that carry out their
effects."""
