"""The contract of each port of the runtime: one suite, run on every adapter."""
