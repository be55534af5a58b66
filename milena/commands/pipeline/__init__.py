"""`milena pipeline`: jobs on Spark."""
