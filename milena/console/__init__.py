"""The HTTP server of `milena up --http`: state, events and lab commands of one cluster, for programs and the console.

It is a process of its own and needs the extra ``console``. Nodes, simulation and supervisor do not import it.
"""
