"""Rows of the tables: written and read, one file per group of tables."""
