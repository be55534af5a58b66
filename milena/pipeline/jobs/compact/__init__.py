"""Carries out the work orders of compacted topics' leaders."""
