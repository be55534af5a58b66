"""The coordinator of classic consumer groups (kafka-behaviour F6): pure state machines, and the shell that runs them."""
