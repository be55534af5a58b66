"""Jobs that read topics with Spark. Each job is a function; its results are Parquet tables and one HTML page."""
