"""Transactions in scenarios: producers whose requests the scenario sends itself, and what a run shows of them."""
