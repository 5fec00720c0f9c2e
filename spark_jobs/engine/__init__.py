"""Where the big queries run: Spark, or DuckDB on one machine."""
