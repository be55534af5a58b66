"""The compiled form of Milena: which modules mypyc compiles, and how (docs/decisions/compiled-form.md)."""
