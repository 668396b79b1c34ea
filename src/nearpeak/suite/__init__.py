"""The suite: cases from workloads and rules, how much of both they cover, and the cheapest that are enough."""

from nearpeak.suite.coverage import coverage_of
from nearpeak.suite.difference import difference
from nearpeak.suite.directed import directed_suite
from nearpeak.suite.file import load_text, save_text
from nearpeak.suite.merge import merged, suite_of
from nearpeak.suite.plan import planned
from nearpeak.suite.ready import ready_names, ready_suite

__all__ = [
    "coverage_of", "difference", "directed_suite", "load_text", "merged", "planned", "ready_names", "ready_suite",
    "save_text", "suite_of",
]  # fmt: skip
