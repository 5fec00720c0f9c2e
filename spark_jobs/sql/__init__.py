"""The text of the big queries; the same for Spark and DuckDB but for what `dialect` knows."""
