"""Small changes to the modules that decide, one at a time: is there a test that fails? ``python -m tests.mutants``.

A tool from PyPI starts a process for each mutant, or keeps its own copy of the tree; here tests are collected once for
a module, and each mutant is a fork in which one function has another code object. What survives has its reason in
``reasons``, or is to be killed by a test.
"""
