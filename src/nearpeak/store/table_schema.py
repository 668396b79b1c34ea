"""Current table definitions: the declarations of all schema versions combined."""

from sqlalchemy import MetaData

from nearpeak.store.migrations.versions import (
    v0001_measurements,
    v0002_findings,
    v0003_retention,
    v0004_bridges_and_records,
    v0005_farm,
    v0006_access,
)

VERSIONS = (
    v0001_measurements, v0002_findings, v0003_retention, v0004_bridges_and_records, v0005_farm, v0006_access,
)  # fmt: skip
"""Versions of the schema, oldest first; a new one is a file and a word here."""
HEAD = VERSIONS[-1].revision
"""Version that this nearpeak reads and writes."""
SUMMARIES = v0001_measurements.SUMMARIES
METADATA = MetaData()
for _version in VERSIONS:
    _version.declare(METADATA)
TABLES = METADATA.tables
"""Tables by name."""
