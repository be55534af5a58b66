"""Mutation tests of modules with decisions: for each small change, a test must fail. ``python -m tests.mutants``.

Tools on PyPI start a process for each mutant, or copy the source tree. Here tests are collected once for a module, and
each mutant runs in a fork in which one function has another code object. A surviving mutant needs a reason in
``reasons``, or a test that kills it.
"""
