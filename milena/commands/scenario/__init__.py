"""`milena scenario`: show and run the scenarios."""
