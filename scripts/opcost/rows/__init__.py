"""Records: their columns and schema versions, and Parquet files of rows."""
