"""The text of the big queries in words of Spark, which `engine.duckdb_engine` teaches DuckDB, too."""
