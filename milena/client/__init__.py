"""Milena's own small client: metadata, idempotent produce, assigned and group consume, admin calls.

It serves the command and the simulation, so time, randomness and the network come from the runtime's ports alone.
"""
