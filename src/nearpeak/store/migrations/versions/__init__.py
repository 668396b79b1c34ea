"""One file per version of the schema; `declare` states its tables, `upgrade` makes them."""
