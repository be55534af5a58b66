"""Tests of the real adapters and the configuration."""
