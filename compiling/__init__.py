"""The compiled flavour of Milena: which modules mypyc compiles, and how
(docs/decisions/2026-11-22-compiled-form.md)."""
