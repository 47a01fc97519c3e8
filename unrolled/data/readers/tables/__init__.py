"""Tables: csv, tsv, JSON lines, Parquet; their headers and columns."""
