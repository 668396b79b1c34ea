"""Versions of the database schema; in each module `declare` states the tables and `upgrade` creates them."""
