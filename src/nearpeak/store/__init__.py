"""History: measurements kept in a database, from which everything else is derived."""

from nearpeak.store.findings import Findings
from nearpeak.store.found import Alert, AlertEvent, Detector, StoredChange, StoredComparison
from nearpeak.store.ingest import Ingested
from nearpeak.store.queries import History
from nearpeak.store.store import Store, open_store

__all__ = [
    "Alert", "AlertEvent", "Detector", "Findings", "History", "Ingested", "Store", "StoredChange", "StoredComparison",
    "open_store",
]  # fmt: skip
