"""What is written: the columns of every record, and Parquet files of them."""
