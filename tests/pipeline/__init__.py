"""The data pipeline on Spark, and its planning without it."""
