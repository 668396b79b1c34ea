"""What holds for every test: drawn samples are the same in every run; web tests may be skipped at home only."""

import os

import hypothesis
import pytest

WEB = "tests/web/"

hypothesis.settings.register_profile("house", derandomize=True, deadline=None)
hypothesis.settings.load_profile("house")


def _must_run(nodeid):
    return nodeid.startswith(WEB) and os.environ.get("CI", "").lower() in ("1", "true")


def _failed(report, nodeid):
    report.outcome = "failed"
    report.longrepr = f"{nodeid}: skipped, but in continuous integration it must run: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    return _failed(report, item.nodeid) if report.skipped and _must_run(item.nodeid) else report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    return _failed(report, collector.nodeid) if report.skipped and _must_run(collector.nodeid) else report
