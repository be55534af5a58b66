"""Transactions in a history: their events, and the rules for all of them together."""
