"""``python -m tests.run``: the suites of ``make test-all``, by name, whole or sampled."""
