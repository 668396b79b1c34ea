"""Damaged files: every missing field is named, and whatever is cut or changed gives runs or one line, never a trace."""

import json
import math
import random

import pytest
from tests.unit.store.importers import documents
from tests.unit.store.importers.documents import runs_of

from nearpeak.errors import SpecError

VALUES = (None, True, -1, 0, 1e400, "", "x" * 300, [], {}, [[]], {"a": None}, "NaN", 10**400, "\x00", -0.0)


FORM = {
    "pytest.json": "pytest_benchmark", "gb.json": "google_benchmark", "abc-env.json": "asv", "nv.json": "nvbench",
    "ort.json": "onnxruntime", "engine.json": "trtexec", "layers.json": "trtexec", "result_0.txt": "mlperf",
    "mlperf_log_summary.txt": "mlperf_inference", "deep.json": "asv", "old-py2.7.json": "asv",
    "hyperfine.json": "hyperfine", "serving.jsonl": "serving_benchmark", "latency.json": "vllm_offline",
    "profile_export_aiperf.json": "aiperf", "profile_export.jsonl": "aiperf", "bmf.json": "bencher",
}  # fmt: skip


LINES = ("mlperf", "mlperf_inference", "serving_benchmark", "aiperf_requests")
"""Documents of several lines, which are no JSON document."""


def places(raw, path=()):
    """Every place in a document, deepest last."""
    yield path
    items = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, one in list(items):
        yield from places(one, (*path, key))


def changed(raw, place, value, *, drop):
    """A copy of the document with the value at `place` replaced or dropped."""
    copy = json.loads(json.dumps(raw))
    holder = copy
    for key in place[:-1]:
        holder = holder[key]
    if not place:
        return value
    if drop:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return copy


def outcome(path):
    """Runs, whose values are then all good, or the error, whose message is then one line that names the file."""
    try:
        runs = runs_of(path, FORM[path.name])
    except SpecError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 600
        return message
    for run in runs:
        assert all(math.isfinite(value) for s in run.samples for value in s.values)
    return runs


@pytest.mark.parametrize("make", documents.ALL, ids=lambda make: make.__name__)
def test_a_file_cut_off_anywhere_is_refused(make, tmp_path):
    path = make(tmp_path)
    data = path.read_bytes()
    cuts = sorted(random.Random(1).sample(range(1, len(data) - 2), 60))
    whole_lines = make.__name__ in LINES and not make.__name__.startswith("mlperf")
    for cut in cuts:
        if whole_lines and b"\n" in data[cut - 1 : cut + 1]:
            continue  # fewer lines, each whole
        path.write_bytes(data[:cut])
        found = outcome(path)
        assert isinstance(found, str), f"cut at {cut} of {len(data)} it is read as whole"


@pytest.mark.parametrize(
    "make", [one for one in documents.ALL if one.__name__ not in LINES], ids=lambda make: make.__name__
)
def test_every_field_that_is_dropped_or_changed_gives_runs_or_one_line(make, tmp_path):
    path = make(tmp_path)
    raw = json.loads(path.read_text())
    draw = random.Random(2)
    spots = list(places(raw))
    for place in spots:
        path.write_text(json.dumps(changed(raw, place, {}, drop=True)))
        outcome(path)
        path.write_text(json.dumps(changed(raw, place, draw.choice(VALUES), drop=False)))
        outcome(path)


@pytest.mark.parametrize("make", documents.ALL, ids=lambda make: make.__name__)
def test_flipped_bytes_give_runs_or_one_line(make, tmp_path):
    path = make(tmp_path)
    data = path.read_bytes()
    draw = random.Random(3)
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(bytes(damaged))
        outcome(path)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (documents.pytest_benchmark, "benchmarks[0].stats: 'median'"), (documents.pytest_benchmark, "'machine_info'"),
        (documents.google_benchmark, "benchmarks[0]: 'time_unit'"), (documents.asv, "'result_columns'"),
        (documents.nvbench, "benchmarks[0].states[0]: 'is_skipped'"), (documents.nvbench, "benchmarks[0]: 'name'"),
        (documents.onnxruntime, "[1].args: 'op_name'"), (documents.trtexec, "[3]: 'computeMs'"),
        (documents.trtexec_profile, "[1]: 'name'"),
    ],
)  # fmt: skip
def test_a_missing_field_is_named_with_its_place(make, field, tmp_path):
    path = make(tmp_path)
    raw = json.loads(path.read_text())
    *_, name = field.split("'")[:2]
    place = [part for part in places(raw) if part and part[-1] == name]
    where = next(one for one in place if _said(one[:-1]) == field.split("'")[0].rstrip(": "))
    path.write_text(json.dumps(changed(raw, where, None, drop=True)))
    answer = outcome(path)
    messages = [answer] if isinstance(answer, str) else answer[0].source.lost
    assert any(f"{field} is missing" in message for message in messages)


def _said(place):
    """A place as errors say it."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
    return text.removeprefix(".")


@pytest.mark.parametrize("key", ["run_start", "run_stop", "submission_benchmark", "submission_platform"])
def test_a_missing_event_of_mlperf_is_named(key, tmp_path):
    path = documents.mlperf(tmp_path)
    path.write_text("\n".join(line for line in path.read_text().splitlines() if f'"{key}"' not in line))
    assert f"the event {key!r} is missing" in outcome(path)


def test_a_file_nested_without_end_is_refused(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text("[" * 200_000)
    assert isinstance(outcome(path), str)
