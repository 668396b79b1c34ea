"""The farm for the terminal: devices, hosts, queue, single jobs."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from nearpeak.report._words import clean, hung, shortened

WIDTH = 80


def overview_text(found: Mapping[str, Any]) -> str:
    """Return devices with what they do, hosts, and how many jobs are in each state."""
    lines = [f"{'device':<32} {'pool':<6} {'state':<11} {'token':>6} {'left':>6}  noise"]
    lines += [_device(one) for one in found["devices"]] or ["no devices; 'nearpeak farm up' registers those of a host"]
    lines += [""] + [
        f"host {shortened(one['name'], 40)}: {one['executor']}, heard of {one['seen_s']:.0f} s ago"
        for one in found["hosts"]
    ]
    counted = ", ".join(f"{count} {state}" for state, count in found["jobs"].items() if count) or "none"
    ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found["attempts"].items())) or "none"
    lines += [f"jobs: {counted}", f"attempts: {ended}", f"queued work: about {found['queued_s']:.0f} s of device time"]
    lines += [f"budget of {clean(name)}: {day_s:.0f} s a day" for name, day_s in sorted(found["budgets"].items())]
    return "\n".join(hung(lines, WIDTH)) + "\n"


def _device(one: Mapping[str, Any]) -> str:
    busy = "running" if one["batch"] is not None else "free"
    state = busy if one["service"] == "open" else one["service"]
    noise = "–" if one["noise_ratio"] is None else f"{one['noise_ratio']:.2%}"
    left = f"{one['left_s']:.0f} s" if one["batch"] is not None else "–"
    return f"{shortened(one['name'], 32):<32} {one['pool']:<6} {state:<11} {one['fencing_token']:>6} {left:>6}  {noise}"


def jobs_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line for each job."""
    if not rows:
        return "no jobs\n"
    lines = [f"{'job':<12} {'kind':<9} {'state':<9} {'p':>1} {'tries':>5}  {'device':<20} note"]
    lines += [
        f"{one['uid'][:12]:<12} {shortened(one['kind'], 9):<9} {one['state']:<9} {one['priority']:>1} "
        f"{one['attempt_count']:>5}  {shortened(one['device'], 20):<20} {shortened(one['note'], 15)}"
        for one in rows
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def job_text(one: Mapping[str, Any]) -> str:
    """Return one job with its attempts and its result."""
    lines = [f"job {one['uid']}: {one['kind']}, {one['state']}"]
    lines += [f"  {name}: {clean(str(value))}" for name, value in one["batch"].items() if value not in ("", None)]
    lines += [
        f"  attempt on {clean(tried['device'])}, token {tried['fencing_token']}: {tried['outcome']}"
        f"{': ' + clean(tried['note']) if tried['note'] else ''}"
        for tried in one["attempts"]
    ]
    lines.append(f"  payload: {clean(json.dumps(one['payload']))[:400]}")
    if one["result"] is not None:
        lines.append(f"  result: {clean(json.dumps(one['result']))[:400]}")
    return "\n".join(part for line in lines for part in _folded(line)) + "\n"


def _folded(line: str) -> list[str]:
    """Return a line in parts that fit, words of any length broken: payloads have few spaces."""
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
