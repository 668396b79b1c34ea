"""Migrations of the database schema, one module per version, in order."""
