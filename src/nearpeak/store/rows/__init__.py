"""Reading and writing of table rows, one module per group of tables."""
