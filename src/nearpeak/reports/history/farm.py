"""Documents of the farm: devices, hosts, queue, single jobs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nearpeak.reports.document import Document, Table, columns
from nearpeak.reports.figure_text import clean, shortened
from nearpeak.units import counted

_MOST_NOTE = 78
"""Characters of a job's note in the list of jobs."""
_MOST_CHARACTERS = 400
"""Of a payload or result, of which `--json` has the whole."""


def overview_document(overview: Mapping[str, Any]) -> Document:
    """Return devices with what they do, hosts, and how many jobs are in each state."""
    lines = [
        f"host {shortened(row['name'], 40)}: {row['executor']}, heard of {row['seen_s']:.0f} s ago"
        for row in overview["hosts"]
    ]
    outcomes = overview["attempts"]
    attempts = ", ".join(f"{outcomes[name]} {text}" for name, text in _OUTCOMES.items() if outcomes.get(name))
    lines += [counted_text(overview["jobs"]), f"attempts (a batch of jobs each): {attempts or 'none'}"]
    lines += [
        f"{counted(row['job_count'], 'job')} {'waits' if row['job_count'] == 1 else 'wait'} for "
        f"{shortened(row['wanted'], 60)}, {'which is out of service' if row['is_known'] else 'which no host ever lent'}"
        for row in overview["stranded"]
    ]
    lines += [f"queued work: about {overview['queued_s']:.0f} s of device time"] if overview["queued_s"] else []
    lines += budget_lines(overview["budgets"], overview["asked_s"])
    devices = Table(
        columns=columns("device", "pool", "state", "#token", "#left", "#noise"),
        rows=list(map(_device, overview["devices"])), empty="no devices; 'nearpeak farm up' registers those of a host",
    )  # fmt: skip
    return Document(blocks=[devices, *lines])


def counted_text(jobs: Mapping[str, int]) -> str:
    """Return how many jobs are in each state.

    >>> counted_text({"done": 2, "failed": 0})
    'jobs: 2 done'
    """
    return "jobs: " + (", ".join(f"{count} {state}" for state, count in jobs.items() if count) or "none")


_OUTCOMES = {
    "running": "running", "accepted": "accepted", "lost": "lost with its host",
    "infra": "sent back, host or device unfit", "rejected": "too late to count",
}  # fmt: skip
"""Text for each outcome of an attempt."""


def budget_lines(budgets: Mapping[str, float], asked_s: Mapping[str, float]) -> list[str]:
    """Return a line for each budget, with the time requested in the last day.

    >>> budget_lines({"pr": 7200.0}, {"pr": 35.0})
    ['budget of trigger pr: 7200 s of device time a day, 35 s requested']
    """
    return [
        f"budget of trigger {clean(name)}: {day_s:.0f} s of device time a day, {asked_s.get(name, 0.0):.0f} s requested"
        for name, day_s in sorted(budgets.items())
    ]


def _device(device: Mapping[str, Any]) -> tuple[object, ...]:
    busy = "running" if device["batch"] is not None else "away" if device["is_away"] else "free"
    state = busy if device["service"] == "open" else device["service"]
    noise = None if device["noise_ratio"] is None else f"{device['noise_ratio']:.2%}"
    left = f"{device['left_s']:.0f} s" if device["batch"] is not None else None
    return device["name"], device["pool"], state, device["fencing_token"], left, noise


def jobs_document(jobs: Sequence[Mapping[str, Any]], whole_count: int) -> Document:
    """Return a line for each job, and the number of jobs not listed."""
    rows = [
        (
            job["uid"][:12],
            job["kind"],
            job["state"],
            job["attempt_count"],
            job["device"],
            job["what"],
            shortened(job["note"], _MOST_NOTE),
        )
        for job in jobs
    ]
    table = Table(
        columns=columns("job", "kind", "state", "#tries", "device", "what", ">note"), rows=rows, empty="no jobs"
    )
    more = f"the newest {len(jobs)} of {whole_count}; --limit {whole_count} lists all"
    return Document(blocks=[table, more if whole_count > len(jobs) else ""] if jobs else ["no jobs"])


def job_document(job: Mapping[str, Any]) -> Document:
    """Return one job with its attempts and its result."""
    batch = dict(job["batch"])
    fields = {"batch": batch.pop("uid", "")}
    fields |= batch if batch.get("comparison") else {name: value for name, value in batch.items() if name != "round"}
    rows = [(name, str(value)) for name, value in fields.items() if value not in ("", None)]
    for tried in job["attempts"]:
        outcome = _OUTCOMES.get(tried["outcome"], tried["outcome"])
        note = f": {tried['note']}" if tried["note"] else ""
        rows.append(("attempt", f"on {tried['device']}, token {tried['fencing_token']}: {outcome}{note}"))
    rows += [
        (name, json.dumps(job[name])[:_MOST_CHARACTERS]) for name in ("payload", "result") if job[name] is not None
    ]
    table = Table(columns=columns("field|", "~value|"), rows=rows, indent_count=2)
    return Document(blocks=[f"job {job['uid']}: {job['kind']}, {job['state']}", table])
