"""Tests of ``broker.follower``."""
