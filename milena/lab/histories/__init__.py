"""Histories of clients, and the checker that judges them: plain data from the simulation, processes or containers."""
