"""Audits a tier: its contents, whether they are readable, gaps, and segments that are never read."""
