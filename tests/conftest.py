"""What holds for every test: the same samples in every run; tests of web and PostgreSQL may be skipped at home only."""

import atexit
import contextlib
import functools
import gc
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pytest
import typer.testing
from tests.folding import folded
from tests.shared_captures import FOLDER, share_captures

# Assertions of tests are rewritten so that they show their values; those of packages whose plug-ins pytest loads need
# no such thing, ours among them, whose many modules would be compiled a second time in every process.
for finder in sys.meta_path:
    getattr(finder, "_must_rewrite", set()).difference_update(("nearpeak", "hypothesis", "anyio"))

try:
    import hypothesis
except ImportError:  # tests of a device draw nothing, and run where nothing can be installed
    pass
else:
    hypothesis.settings.register_profile("house", derandomize=True, deadline=None)
    hypothesis.settings.load_profile("house")

WEB, SERVER = "tests/web/", "postgresql"
PACKAGE = Path(__file__).parents[1] / "src" / "nearpeak"

# Each call of a command would build the tree of all commands and options again, which never changes.
typer.testing._get_command = functools.cache(typer.testing._get_command)

# Thousands of tests are objects that stay: looking through them for cycles again and again takes a tenth of a run.
# Where it does look, it waits for many more objects than usual: parsing every source alone makes millions that stay.
gc.disable()
gc.set_threshold(50_000, 20, 20)
atexit.register(gc.unfreeze)  # packages look for leaks when Python ends


def pytest_runtest_setup():
    """Have tests share captures and empty stores, once something has imported what makes them."""
    makers = {
        "nearpeak.frontends.source_types": ("capture_isolated", _sharing),
        "nearpeak.store.store_check": ("make_at", _copying),
    }
    if "nearpeak.frontends.child_capture" in sys.modules:
        share_captures()
    for name, (function, sharing) in makers.items():
        module = sys.modules.get(name)
        if module is not None and not hasattr(getattr(module, function), "__wrapped__"):
            setattr(module, function, sharing(getattr(module, function)))


def _sharing(capture):
    """Models that are known by name are captured once for all tests: a child process captures them, which no test sees.

    Sources that are files or types may change between tests, and are captured anew each time.
    """
    kept = {}

    @functools.wraps(capture)
    def shared(frontend, source, options, **details):
        if not frontend.endswith(":capture_architecture") or Path(source).exists():
            return capture(frontend, source, options, **details)
        key = json.dumps([source, options.record(), details])
        if key not in kept:
            kept[key] = capture(frontend, source, options, **details)
        return kept[key]

    return shared


def _copying(make_at):
    """Tables of a store of today are made once for all tests; other files are copies with an identity of their own."""
    folder = tempfile.TemporaryDirectory(prefix="np-empty-store-")
    first = Path(folder.name) / "empty.db"

    @functools.wraps(make_at)
    def copied(path, version="head"):
        if version != "head":
            make_at(path, version)
            return
        own = {"uid": uuid.uuid4().hex, "made_ns": str(time.time_ns())}
        try:
            if not first.exists():
                make_at(first)
            shutil.copyfile(first, path)  # a file that is there keeps its mode
            with contextlib.closing(sqlite3.connect(path)) as connection, connection:
                rows = [(own[name], name) for name in own]
                connection.executemany("UPDATE store_info SET value = ? WHERE name = ?", rows)
        except Exception:  # what is wrong with a place, or with who asks, is said as every user is told
            path.unlink(missing_ok=True)
            make_at(path)

    copied.folder = folder  # it goes when nothing holds it
    return copied


def pytest_addoption(parser):
    """Take how long tests of a device may be begun: what is then under way ends within a quarter of an hour."""
    parser.addoption("--device-seconds", type=float, default=820.0, help="begin no test of a device after this time")
    parser.addoption("--unfolded", action="store_true", help="run every case of a long parametrisation as its own test")


def pytest_ignore_collect(collection_path):
    """Skip modules of the package without an example: each would be imported and searched in every process."""
    is_module = collection_path.suffix == ".py" and PACKAGE in collection_path.parents
    return True if is_module and b">>> " not in collection_path.read_bytes() else None


def pytest_configure(config):
    """Where tests run side by side each process computes on one thread: more would wait for one another's cores."""
    if FOLDER not in os.environ:  # workers have it from who started them
        config.captures = tempfile.TemporaryDirectory(prefix="np-captures-")
        os.environ[FOLDER] = config.captures.name
    if getattr(config.option, "numprocesses", None):
        from nearpeak.measurement.isolated_measurement import thread_variables

        os.environ.update({**thread_variables(1), **os.environ})


def pytest_collection_finish():
    """Leave what collecting made out of every later search for cycles."""
    gc.freeze()
    gc.enable()


def _must_run(nodeid):
    return (nodeid.startswith(WEB) or SERVER in nodeid) and os.environ.get("CI", "").lower() in ("1", "true")


def _failed(report, nodeid, reason):
    report.outcome = "failed"
    report.longrepr = f"{nodeid}: skipped, but in continuous integration it must run: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    skipped = {item.nodeid: report.longrepr} if report.skipped else {}
    if report.when == "call":
        skipped |= getattr(item, "skipped", {})  # of cases that run as one test
    for nodeid in filter(_must_run, skipped):
        return _failed(report, nodeid, skipped[nodeid])
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    must_run = report.skipped and _must_run(collector.nodeid)
    return _failed(report, collector.nodeid, report.longrepr) if must_run else report


SLOW_FILES = frozenset({
    "test_architecture", "test_autocast", "test_bisecting", "test_block_formats", "test_bridging", "test_chaos",
    "test_compare", "test_demonstration", "test_device_report",
    "test_device_report_of_a_gpu", "test_doors", "test_executions", "test_executors",
    "test_farm_command", "test_faults", "test_fidelity", "test_gating", "test_history_commands",
    "test_hostile_requests", "test_house",
    "test_importers", "test_ingest_and_history", "test_keeping", "test_kernel_functions",
    "test_laws_of_rules", "test_leases", "test_lowerings", "test_masked_products", "test_measured_in_isolation",
    "test_measured_with_telemetry", "test_mixed_precision", "test_model_type", "test_onnx_file", "test_optimizers",
    "test_other_users",
    "test_paired", "test_planted_causes", "test_predict_cpu", "test_properties", "test_pytest_plugin", "test_qualify",
    "test_queue", "test_ranking", "test_replay", "test_reports_and_comparison", "test_rounds", "test_runners",
    "test_runs_of_suites", "test_sampler", "test_samples", "test_score_and_export", "test_simplify", "test_slots",
    "test_store_command", "test_suite_command", "test_theory_table", "test_tls", "test_trace_formats",
    "test_trace_samples", "test_trace_timelines", "test_tries", "test_upgrade", "test_watchdog",
})  # fmt: skip
"""Files that take more than a second and a half: they start processes or run many models."""


SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text(encoding="utf-8").split())
"""Other functions that take long, all their cases together; `list_slow.py` writes them."""


@pytest.hookimpl(wrapper=True)  # within that of --last-failed, which looks for the names of what has run
def pytest_collection_modifyitems(session, items):
    """Mark what `make check` leaves to `make test`, and fold long parametrisations."""
    for item in items:
        if item.path.stem in SLOW_FILES or item.nodeid.partition("[")[0] in SLOW:
            item.add_marker(pytest.mark.slow)
    result = yield  # now it is settled which cases run
    if not session.config.getoption("unfolded"):
        items[:] = folded(items)
    return result
