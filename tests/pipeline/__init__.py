"""Tests of the data pipeline on Spark, and of its planning without Spark."""
