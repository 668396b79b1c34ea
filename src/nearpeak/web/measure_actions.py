"""Remeasure and bisect actions of a page: farm jobs where a farm exists, otherwise the equivalent commands."""

import dataclasses
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearpeak.core.history.stored_run import Series
from nearpeak.core.runs.measurement import Timing
from nearpeak.errors import SpecError
from nearpeak.farm.batch_priority import priority_of
from nearpeak.farm.device_registry import devices
from nearpeak.farm.job_queue import Submitted, submit
from nearpeak.farm.jobs import BatchRequest, JobRequest
from nearpeak.farm.queue_views import job_rows
from nearpeak.history.stored_devices import case_of_series, target_of_device
from nearpeak.measurement.runners import RUNNERS
from nearpeak.reports.document import Table
from nearpeak.store.rows.list_rows import AlertRow
from nearpeak.web.farm_tables import jobs_table
from nearpeak.web.reproduction_commands import case_words, measure_command, store_option
from nearpeak.web.site import Site

MOST_SERIES = 24
"""Series that one click measures again."""
STEP_LIMIT_S = 600.0
"""Longest time of one command of a search."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something that a page can have done."""

    action: str
    """`measure` or `bisect`."""
    title: str
    """Label of its button."""
    command: str
    """The command that does the same."""
    why_not: str = ""
    """Why the farm cannot do it; empty where it can."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Actions that a page offers, and the jobs requested before."""

    path: str
    """Where its forms go."""
    offers: tuple[Offer, ...]
    """Available actions."""
    jobs: Table
    """Jobs about what the page shows, newest first."""
    once: str
    """Tells a second click on the same page from a new wish."""


def again(site: Site, path: str, series: Sequence[Series], alert: AlertRow | None = None) -> Again:
    """Return what a page on some series, or on an alert, offers."""
    models = farm_models(site)
    some = [candidate for candidate in series[:MOST_SERIES] if _command(candidate, models)]
    offers = []
    if some:
        why_not = "" if _measurable(some, models) else "no device of its model is lent to a farm on this store"
        offers.append(
            Offer(
                action="measure",
                title="Measure again",
                command=_command(some[0], models) + store_option(site),
                why_not=why_not,
            )
        )
    if alert is not None and some and alert.rev_lo and alert.rev_hi:
        offers.append(_bisection(site, some, alert, models))
    subjects = [
        *(_subject(candidate) for candidate in series[:MOST_SERIES]),
        *([_alert_subject(alert.id)] if alert else ()),
    ]
    rows = job_rows(site.store, subjects=subjects, limit=20) if subjects else ()
    return Again(path=path, offers=tuple(offers), once="" if site.setting.is_static else secrets.token_hex(8),
                 jobs=jobs_table(rows, "asked", "Jobs requested from the farm"))  # fmt: skip


def farm_models(site: Site) -> tuple[str, ...]:
    """Return the models of the devices that are lent to the farm and take work."""
    states = devices(site.store)
    return tuple(
        sorted({state.device.model for state in states if state.device.pool == "device" and state.service == "open"})
    )


def put(site: Site, action: str, series: Sequence[Series], alert: AlertRow | None, by: tuple[str, str]) -> Submitted:
    """Queue the requested jobs on the farm, and log the requester.

    Args:
        by: name of the requester, and a key that distinguishes repeated requests.

    Raises:
        SpecError: the farm cannot do it; says why.
    """
    models, (actor, once) = farm_models(site), by
    if not (once.isalnum() and once.isascii() and len(once) <= 32):
        raise SpecError("once: is missing; load the page again")
    options: dict[str, Any] = {"owner": actor, "key": f"dashboard {once}"}
    if action == "measure":
        requests = [
            _measurement(candidate, models, **options) for candidate in _measurable(series[:MOST_SERIES], models)
        ]
    elif action == "bisect" and alert is not None:
        requests = [_search(site, series, alert, models, **options)]
    else:
        raise SpecError(f"action {action[:20]!r}: is not known here; there are measure, and bisect for alerts")
    if not requests:
        raise SpecError(f"{action}: no device of its model is lent to a farm on this store")
    done = submit(site.store, requests)
    if done.new_count:
        site.store.access.log(
            actor, f"farm {action}", f"alert {alert.id}" if alert else _subject(series[0]), done.uids[0]
        )
    return done


def _subject(series: Series) -> str:
    return f"series {series.id}"


def _alert_subject(alert: int) -> str:
    return f"bisect alert {alert}"


def _is_plain(series: Series) -> bool:
    """Say whether a runner is one of ours without an argument: others name programs, and names come from anywhere."""
    return series.testbed.name in RUNNERS and bool(case_words(series))


def _model(series: Series, models: Sequence[str]) -> str:
    """Return the farm's device model of a series; empty where the farm has none."""
    if series.device in models:
        return series.device
    target = target_of_device(series.device)
    return next((name for name in models if target is not None and target_of_device(name) is target), "")


def _measurable(series: Sequence[Series], models: Sequence[str]) -> list[Series]:
    return [candidate for candidate in series if _is_plain(candidate) and _model(candidate, models)]


def _command(series: Series, models: Sequence[str]) -> str:
    if not _is_plain(series):
        return ""
    words = measure_command(series).removeprefix("nearpeak measure ")
    model = _model(series, models)
    return f"nearpeak farm submit measure {words}" + (f" --model {shlex.quote(model)}" if model else "")


def _measurement(series: Series, models: Sequence[str], *, owner: str, key: str) -> BatchRequest:
    cache = series.testbed.policy.get("cache")
    timing = dataclasses.asdict(Timing(cache=str(cache)) if cache in ("cold", "hot") else Timing())
    payload = {
        "case": case_of_series(series).record(),
        "runner": series.testbed.name,
        "timing": timing,
        "branch": series.branch,
    }
    job = JobRequest(kind="measure", payload=payload, key=key, subject=_subject(series))
    return BatchRequest(jobs=(job,), pool="device", model=_model(series, models), priority=priority_of("suspect"),
                        owner=owner, trigger="rerun")  # fmt: skip


def _bisection(site: Site, series: Sequence[Series], alert: AlertRow, models: Sequence[str]) -> Offer:
    run = shlex.quote(f"{measure_command(series[0])} --json")
    ends = f"--good {shlex.quote(alert.rev_lo)} --bad {shlex.quote(alert.rev_hi)}"
    command = f"nearpeak bisect {ends} --run {run} --farm --alert {alert.id}{store_option(site)}"
    why_not = "" if _measurable(series, models) else "no device of its model is lent to a farm on this store"
    if site.setting.repository is None:
        why_not = "the server does not know the repository ('nearpeak serve --repository DIR')"
    return Offer(action="bisect", title="Search the commit", command=command, why_not=why_not)


def _search(
    site: Site, series: Sequence[Series], alert: AlertRow, models: Sequence[str], *, owner: str, key: str
) -> BatchRequest:
    some, place = _measurable(series, models), site.setting.repository
    if place is None or not some:
        raise SpecError("bisect: needs 'nearpeak serve --repository DIR', and a device of its model in the farm")
    payload = {
        "repository": str(Path(place).resolve()), "run": f"{measure_command(some[0])} --json", "good": alert.rev_lo,
        "bad": alert.rev_hi, "limit_s": STEP_LIMIT_S,
    }  # fmt: skip
    job = JobRequest(kind="bisect", payload=payload, key=key, subject=_alert_subject(alert.id))
    return BatchRequest(jobs=(job,), pool="device", model=_model(some[0], models), priority=priority_of("bisect"),
                        owner=owner, trigger="bisect")  # fmt: skip
