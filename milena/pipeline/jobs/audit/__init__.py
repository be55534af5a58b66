"""Audits a tier: what is in it, whether it can be read, whether anything is missing, and what nobody reads."""
