"""Folding of long parametrisations: a test of many cases without fixtures runs as one item that names what failed."""

import traceback
from collections import defaultdict

import pytest
from _pytest.python import get_direct_param_fixture_func

LEAST_CASES = 8
"""Cases from which a test is folded: each test of its own costs milliseconds, whatever it does."""
MOST_SHOWN = 5
"""Failed cases with their traceback; of the others the last line alone is shown."""


class FailedCases(Exception):  # noqa: N818
    """Cases of one test that failed, with what each raised."""


class FoldedTest(pytest.Item):
    """All cases of a parametrised test function, run one after the other to the last."""

    fixturenames = ()
    """A test that takes fixtures is not folded."""

    def __init__(self, *, cases, **details):
        """Take the items that pytest made of the cases."""
        super().__init__(**details)
        self.cases, self.skipped = cases, {}
        for mark in cases[0].own_markers:
            if mark.name != "parametrize":
                self.add_marker(mark.name)

    def reportinfo(self):
        path, line, _ = self.cases[0].reportinfo()
        return path, line, self.name

    def runtest(self):
        failed = []
        for item in self.cases:
            try:
                item.obj(**item.callspec.params)
            except (pytest.skip.Exception, pytest.xfail.Exception) as reason:
                self.skipped[item.nodeid] = f"{reason}"
            except (Exception, SystemExit, pytest.fail.Exception) as error:
                failed.append((item.callspec.id, error))
        if failed:
            raise FailedCases(failed)
        if self.skipped:
            words = f"{len(self.skipped)} of {len(self.cases)} cases: {next(iter(self.skipped.values()))}"
            if len(self.skipped) == len(self.cases):
                pytest.skip(words)
            self.warn(pytest.PytestWarning(f"skipped {words}"))

    def repr_failure(self, excinfo, style=None):
        if not isinstance(excinfo.value, FailedCases):
            return super().repr_failure(excinfo, style)
        (failed,) = excinfo.value.args
        lines = [f"{len(failed)} of {len(self.cases)} cases failed; `pytest '{self.nodeid}[CASE]'` runs one of them"]
        for place, (name, error) in enumerate(failed):
            if place < MOST_SHOWN:
                frames = traceback.format_exception(type(error), error, error.__traceback__.tb_next)
                lines += [f"--- [{name}]", "".join(frames).rstrip()]
            else:
                lines.append(f"--- [{name}] {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        return "\n".join(lines)


def folded(items):
    """Return the items; those of one test stand as one where they are many, take no fixture and carry equal marks."""
    groups, kept = defaultdict(list), []
    for item in items:
        groups[_folding_key(item)].append(item)
    for item in items:
        key = _folding_key(item)
        cases = groups[key]
        if key is None or len(cases) < LEAST_CASES:
            kept.append(item)
        elif item is cases[0]:
            name = item.originalname + ("[long]" if "long" in key[-1] else "")
            kept.append(FoldedTest.from_parent(item.parent, name=name, cases=cases))
    return kept


def _folding_key(item):
    """What the cases of one test share; none for tests that are no cases, or need fixtures or marks of their own."""
    spec = getattr(item, "callspec", None)
    if spec is None or item.cls is not None or hasattr(item.obj, "hypothesis"):
        return None
    names = {mark.name for mark in item.own_markers} - {"parametrize", "slow", "long"}
    fixtures = item._fixtureinfo.name2fixturedefs
    if names or not all(_is_parameter(fixtures.get(name)) for name in item.fixturenames):
        return None
    return item.parent.nodeid, item.originalname, tuple(sorted(mark.name for mark in item.own_markers))


def _is_parameter(definitions):
    """Whether an argument of a test is a value of its parametrisation; pytest gives these a fixture, too."""
    return bool(definitions) and definitions[-1].func is get_direct_param_fixture_func
