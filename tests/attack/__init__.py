"""`python -m tests.attack`: mutated frames, hostile peers and abuse of resources, against nodes of its own."""
