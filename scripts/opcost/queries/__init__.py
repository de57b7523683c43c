"""What people and programs get of a database: filtered rows, listings, exports."""
