"""Histories of clients, and their checker. Histories are plain data from the simulation, processes or containers."""
