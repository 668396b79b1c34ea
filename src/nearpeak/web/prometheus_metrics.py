"""Prometheus metrics of the dashboard: its own requests, and what the store and the farm hold."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client import Counter as Count
from prometheus_client.core import GaugeMetricFamily

from nearpeak.farm.farm_status import overview
from nearpeak.history.series_state import standings
from nearpeak.web.site import Site

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of the text format of Prometheus."""
LATE, STALLED, CROWDED, MALFORMED = GIVEN_UP = ("late", "stalled", "crowded", "malformed")
"""Reasons for giving up a connection: it sends or reads too slowly, too many are open, it does not speak HTTP."""
MOST_SERIES = 500
"""Series of times that the metrics show; how many there are more is a metric, too."""
_LABELS = ("case", "device", "testbed", "branch", "series")
_BUCKETS_S = (0.005, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)


class Traffic:
    """Counts of the requests of one server."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._registry = CollectorRegistry()
        self._spent = Histogram(
            "nearpeak_request_duration_seconds", "Time from a request to the head of its answer", ["status"],
            buckets=_BUCKETS_S, registry=self._registry,
        )  # fmt: skip
        self._closed = Count(
            "nearpeak_connections_closed", "Connections that the server gave up", ["reason"], registry=self._registry
        )
        for reason in GIVEN_UP:
            self._closed.labels(reason)
        self.open_count = 0
        """Requests that are being answered, or wait for it."""

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as open within the block."""
        self.open_count += 1
        try:
            yield
        finally:
            self.open_count -= 1

    def count(self, status: int, spent_s: float) -> None:
        """Count an answer."""
        self._spent.labels(str(status)).observe(spent_s)

    def give_up(self, reason: str) -> None:
        """Count a connection that is given up; the reason is one of GIVEN_UP."""
        self._closed.labels(reason).inc()

    def text(self) -> str:
        """Return all counts in the text format of Prometheus."""
        return generate_latest(self._registry).decode()


class _StoreMetrics:
    """Collector of gauges of a store and its farm."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield all gauges."""
        store = self._site.store
        rows = {name: count for name, count in store.info().items() if isinstance(count, int) and name in _TABLES}
        yield _gauge("nearpeak_store_rows", "Rows of the store's tables", "table", rows)
        statuses = Counter(key.status for key in store.browsing.alert_keys())
        yield _gauge("nearpeak_alerts", "Alerts by status", "status", statuses)
        newest, _ = store.browsing.runs(limit=1)
        started_s = {"": newest[0].started_ns / 1e9} if newest else {}
        yield _gauge("nearpeak_newest_run_timestamp_seconds", "Start of the newest run", "", started_s)
        yield from self._series()
        farm = overview(store)
        yield _gauge("nearpeak_farm_jobs", "Jobs of the farm by state", "state", farm["jobs"])
        services = Counter("away" if row["is_away"] else row["service"] for row in farm["devices"])
        yield _gauge("nearpeak_farm_devices", "Devices of the farm by service", "service", services)
        yield _gauge("nearpeak_farm_queued_seconds", "Expected device time of queued jobs", "", {"": farm["queued_s"]})

    def _series(self) -> Iterator[GaugeMetricFamily]:
        """Yield the newest time of each series, and which part of its device's peak it reaches."""
        page = self._site.store.browsing.series("", {"metric": "time"}, limit=MOST_SERIES, offset=0)
        times = GaugeMetricFamily("nearpeak_time_seconds", "Newest time of a series", labels=_LABELS)
        reached = GaugeMetricFamily("nearpeak_attained_ratio", "Least possible time over newest time", labels=_LABELS)
        for state in standings(self._site.store, page.rows, predicted=False):
            series = state.series
            labels = (series.label, series.device, series.testbed.name, series.branch, str(series.id))
            for family, value in ((times, state.value), (reached, state.attained_ratio)):
                if value is not None:
                    family.add_metric(labels, value)
        yield times
        yield reached
        left_out = {"": page.total_count - len(page.rows)}
        yield _gauge("nearpeak_series_left_out", "Series of times beyond those shown", "", left_out)


_TABLES = ("run", "series", "measurement", "revision", "change_point", "alert")


def _gauge(name: str, text: str, label: str, values: Any) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, text, labels=[label] if label else [])
    for key, value in sorted(values.items()):
        gauge.add_metric([key] if label else [], value)
    return gauge


def metrics_text(site: Site, traffic: Traffic) -> str:
    """Return the metrics of a server; those of the store are at most a quarter of a minute old."""

    def stored() -> str:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_StoreMetrics(site))
        return generate_latest(registry).decode()

    text: str = site.remembered("metrics", stored, is_lazy=True)
    return traffic.text() + text
