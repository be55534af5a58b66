"""The coordinator of classic consumer groups: state machines without I/O, and the shards that write their records and
set their timers."""
