"""Jobs on what the brokers keep: each is a function on DataFrames, with its results as Parquet and one HTML page."""
