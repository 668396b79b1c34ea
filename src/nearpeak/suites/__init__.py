"""Test suites: cases from workloads and rules, their coverage, and the cheapest sufficient subset."""

from nearpeak.suites.coverage_numbers import coverage_of
from nearpeak.suites.directed_cases import directed_suite
from nearpeak.suites.run_plan import planned
from nearpeak.suites.suite_difference import difference
from nearpeak.suites.suite_file import load_text, save_text
from nearpeak.suites.suite_merge import merged, suite_of
from nearpeak.suites.suite_names import ready_names, ready_suite

__all__ = [
    "coverage_of", "difference", "directed_suite", "load_text", "merged", "planned", "ready_names", "ready_suite",
    "save_text", "suite_of",
]  # fmt: skip
