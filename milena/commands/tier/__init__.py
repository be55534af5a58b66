"""`milena tier`: inspects a remote tier, without a running cluster."""
