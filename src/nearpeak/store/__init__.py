"""History: measurements kept in a database, from which everything else is derived."""

from nearpeak.store.findings import Alert, AlertEvent, ChangePoint, Detector, Findings, StoredComparison
from nearpeak.store.ingest import Ingested
from nearpeak.store.queries import History
from nearpeak.store.store import Store, open_store

__all__ = [
    "Alert", "AlertEvent", "ChangePoint", "Detector", "Findings", "History", "Ingested", "Store", "StoredComparison",
    "open_store",
]  # fmt: skip
