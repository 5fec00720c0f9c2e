"""The engines for big queries: Spark, or DuckDB on one machine."""
