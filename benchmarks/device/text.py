"""A device report for people: Markdown, and the same for a terminal."""

from collections.abc import Iterator, Sequence
from typing import Any

from nearpeak.units import counted, show


def to_markdown(report: dict[str, Any]) -> str:
    """Return the whole report."""
    return "\n".join(_lines(report)) + "\n"


def to_terminal(report: dict[str, Any]) -> str:
    """Return the whole report without the marks of Markdown."""
    return to_markdown(report).replace("**", "").replace("`", "")


def _lines(report: dict[str, Any]) -> Iterator[str]:
    sections, environment = report["sections"], report["environment"] or {}
    yield f"# Device report: {environment.get('device', 'unknown device')}"
    yield ""
    driver = ", ".join(filter(None, (environment.get("driver"), environment.get("runtime"))))
    yield (
        f"Target `{report['target'] or 'unknown'}`, runner `{report['runner']}`, {report['date']}, "
        f"{report['took_s']:.0f} s{f', {driver}' if driver else ''}."
    )
    yield ""
    yield from _summary(report)
    yield from _roofs(sections["roofs"])
    yield from _bounds(sections["bounds"])
    yield from _predictions(sections["predictions"])
    yield from _operators(sections["operators"])
    yield from _timer(sections["timer"])
    yield from _energy(sections["energy"])


def _summary(report: dict[str, Any]) -> Iterator[str]:
    """Yield what a reader has to know who reads no further: whether it is whole, how much passed, what went wrong."""
    faults, sections = report["faults"], report["sections"]
    if not report["finished"]:
        yield "**Not finished: what was measured before the run ended.**\n"
    yield f"**{counted(len(faults), 'fault')}.**" if faults else "**No faults.**"
    yield from (f"- {one}" for one in faults)
    yield ""
    bounds, rows = sections["bounds"], sections["operators"]
    right = sum(row["status"] == "PASS" for row in rows)
    yield (
        f"{right} of {counted(len(rows), 'operator')} right; {len(bounds['below'])} of {bounds['bounded_count']} timed "
        f"cases below their bound; {_attained(sections['roofs'])}."
    )
    if report["not_run"]:
        yield f"\nTime was up before {counted(len(report['not_run']), 'case')}: {', '.join(report['not_run'])}."


def _attained(rows: list[dict[str, Any]]) -> str:
    """Return what share of the datasheet each roof reached."""
    found = [f"{row['roof']} {row['attained_ratio']:.0%}" for row in rows if row.get("attained_ratio")]
    return f"of the datasheet: {', '.join(found)}" if found else "no roof beside a datasheet"


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    yield from (f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


def _roofs(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from _table("Roofs", ("roof", "case", "measured", "datasheet", "attained", "of the bound"), [
        (row["roof"], row["case"],
         _measured(row),
         show(row["stated_rate"], row["unit"]) if row.get("stated_rate") else "unknown",
         _percent(row.get("attained_ratio")), _percent(row.get("bound_ratio")))
        for row in rows
    ])  # fmt: skip


def _measured(row: dict[str, Any]) -> str:
    """Return the rate, and what is to be known of it where its time counts for no comparison."""
    if "rate" not in row:
        return f"{row['outcome']}: {row['note']}"
    rate = show(row["rate"], row["unit"])
    return rate if row["outcome"] in ("converged", "budget") else f"{rate}, {row['outcome']}: {row['note']}"


NEAREST_COUNT = 10
"""Cases that are shown beside their bounds; all of them stand in the JSON file."""


def _bounds(found: dict[str, Any]) -> Iterator[str]:
    yield "\n## Bounds\n"
    yield (
        f"{counted(found['timed_count'], 'case')} timed, {found['bounded_count']} with a bound on this device, "
        f"{len(found['below'])} faster than it."
    )
    nearest = found["cases"][:NEAREST_COUNT]
    if nearest:
        yield from _table("Nearest to their bounds", ("case", "caches", "best", "bound", "bound / best"), [
            (row["case"], row["cache"], show(row["best_s"], "s"), show(row["bound_s"], "s"),
             f"{row['bound_ratio']:.1%}")
            for row in nearest
        ])  # fmt: skip


def _predictions(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from _table("Predictions", ("family", "cases", "median error", "within the interval", "not counted"), [
        (row["family"], str(len(row["cases"])), _percent(row["median_error_ratio"]), _percent(row["within_ratio"]),
         "; ".join(row["uncovered"]) or "none")
        for row in rows
    ])  # fmt: skip


def _percent(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio:.1%}"


def _operators(rows: list[dict[str, Any]]) -> Iterator[str]:
    passed = sum(row["status"] == "PASS" for row in rows)
    rest = [row for row in rows if row["status"] != "PASS"]
    yield f"\n## Operators\n\n{passed} of {len(rows)} pass every check of the contract.\n"
    if rest:
        yield from _table("Operators that did not pass", ("operator", "case", "status", "why", "again"), [
            (row["operator"], row["case"], row["status"], row["note"], row.get("again", "")) for row in rest
        ])  # fmt: skip


def _timer(found: dict[str, Any] | None) -> Iterator[str]:
    yield "\n## Timer\n"
    if found is None:
        yield "Its clock could not be read."
        return
    calls = ", ".join(f"{show(time_s, 's')} in a row of {count}" for count, time_s in found["call_s"].items())
    yield f"`{found['name']}`: step {show(found['resolution_s'], 's')}, nothing takes {show(found['nothing_s'], 's')}."
    yield f"One call takes {calls}; rows of 100 vary by {found['spread_ratio']:.1%}."
    if found["spin_s"]:
        spins = ", ".join(f"{int(n):,} cycles {show(time_s, 's')}" for n, time_s in found["spin_s"].items())
        yield f"Known delays: {spins}."


def _energy(found: dict[str, Any]) -> Iterator[str]:
    yield "\n## Power and energy\n"
    if found["note"]:
        yield found["note"]
    if not found["meters"]:
        yield "No meter gave a value."
    for one in found["meters"]:
        value = f"{one['low_j']:.5g} to {one['high_j']:.5g} J over {one['covered_s']:.4g} s"
        yield f"- {one['domain']} by {one['method']} of `{one['channel']}`: {value}"
        yield from (f"  - {warning}" for warning in one["warnings"])
    for domain, ratio in found.get("counter_to_integral_ratio", {}).items():
        yield f"- {domain}: the counter says {ratio:.3f} times the integral"
    if "sampler_cpu_ratio" in found:
        rounds = f"{found['missed_count']} rounds of {found['tick_count']} were left out"
        yield f"- the sampler took {found['sampler_cpu_ratio']:.2%} of a core; {rounds}"
    yield from (f"- not available: {name}: {why}" for name, why in found.get("unavailable", ()))
