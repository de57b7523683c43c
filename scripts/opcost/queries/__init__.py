"""Queries of databases: filtering, listing, export."""
