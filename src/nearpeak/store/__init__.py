"""The measurement store: an SQL database of runs, series, findings and farm jobs, with importers and retention."""

from nearpeak.store.database import Store, open_store
from nearpeak.store.rows.finding_rows import Findings
from nearpeak.store.rows.finding_values import Alert, AlertEvent, Detector, StoredChange, StoredComparison
from nearpeak.store.run_ingest import Ingested
from nearpeak.store.series_queries import History

__all__ = [
    "Alert", "AlertEvent", "Detector", "Findings", "History", "Ingested", "Store", "StoredChange", "StoredComparison",
    "open_store",
]  # fmt: skip
