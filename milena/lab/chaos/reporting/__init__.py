"""The report on a run: figures over time, outages, the time axis, and the page."""
