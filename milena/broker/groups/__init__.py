"""The coordinator of classic consumer groups: pure state machines, and the shell that runs them."""
