"""Client libraries that people use, behind ``milena.lab.chaos.clients.Clients``: a module each.

Threads are bridged in ``bridge``; what errors mean is in ``outcomes`` and in each module's docstring. The same tests
run over all of them: ``contract``, collected by tests/wire, and for Java by tests/oracle.
"""
