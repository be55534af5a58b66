"""Tests of the planning of the data pipeline, which needs no Spark."""
