"""Tests of the tests: each fault seeded here is caught by the check that is there for it."""

import shutil
import subprocess
import sys

import house_rules
import pytest
from house_rules import PACKAGE, ROOT
from tests.sampling import first_of_each

FIELD = '@dataclass(frozen=True, slots=True, kw_only=True)\nclass A:\n    "Doc."\n    {}\n    "Doc."\n'
SOURCES = {
    "not frozen": (
        house_rules.dataclass_faults,
        "@dataclass(slots=True, kw_only=True)\nclass A:\n    pass\n",
        "frozen",
    ),
    "positional": (
        house_rules.dataclass_faults,
        "@dataclass(frozen=True, slots=True)\nclass A:\n    pass\n",
        "kw_only",
    ),
    "bare decorator": (house_rules.dataclass_faults, "@dataclass\nclass A:\n    pass\n", "frozen, kw_only, slots"),
    "mutable field": (house_rules.dataclass_faults, FIELD.format("calls: list[str]"), "can be changed"),
    "no unit": (house_rules.dataclass_faults, FIELD.format("bandwidth: float"), "without a unit"),
    "no unit, optional": (house_rules.dataclass_faults, FIELD.format("latency: float | None = None"), "without a unit"),
    "no unit, mapping": (house_rules.dataclass_faults, FIELD.format("rates: Mapping[str, float]"), "without a unit"),
    "silent field": (house_rules.dataclass_faults, FIELD.replace('{}\n    "Doc."', "time_s: float"), "no string"),
    "silent module": (house_rules.documentation_faults, "import os\n", "does not start with a line"),
    "silent function": (house_rules.documentation_faults, '"""M."""\ndef run():\n    pass\n', "not documented"),
    "stale argument": (
        house_rules.documentation_faults,
        '"""M."""\ndef run(a):\n    """Run.\n\n    Args:\n        b: size."""\n',
        "no parameter",
    ),
    "empty words": (house_rules.documentation_faults, '"""M."""\ndef run():\n    "This function runs."\n', "says that"),
    "long file": (house_rules.size_faults, "x = 1\n" * 401, "401 lines"),
    "long function": (house_rules.size_faults, "def run():\n" + "    x = 1\n" * 50, "51 lines"),
    "print": (house_rules.print_faults, "def run():\n    print(1)\n", "print()"),
    "early torch": (
        house_rules.import_faults,
        "try:\n    import torch.fx\nexcept ImportError:\n    pass\n",
        "torch.fx",
    ),
    "early onnx": (house_rules.import_faults, "class A:\n    from onnx import load\n", "onnx"),
    "state": (house_rules.state_faults, "CACHE: dict[str, int] = {}\n", "is state"),
    "encoding of the locale": (house_rules.encoding_faults, "open(path)\n", "open() without an encoding"),
    "words of a program in the encoding of the locale": (
        house_rules.encoding_faults,
        "subprocess.run(words, text=True)\n",
        "without an encoding",
    ),
    "imports from where it stands": (house_rules.child_faults, "[sys.executable, '-m', 'nearpeak']\n", "without -P"),
    "pool that does so": (house_rules.child_faults, "multiprocessing.get_context('spawn')\n", "outside safe_imports"),
    "machine path": (house_rules.word_faults, "see /" + "tmp/x\n", "does not belong"),
    "note to self": (house_rules.word_faults, "# TO" + "DO later\n", "does not belong"),
}
FINE = {
    "a good value": (house_rules.dataclass_faults, FIELD.format("time_s: float = 0.0")),
    "keys are no numbers": (house_rules.dataclass_faults, FIELD.format("names: Mapping[int, str]")),
    "late torch": (house_rules.import_faults, "def run():\n    import torch\n"),
    "types only": (house_rules.import_faults, "if TYPE_CHECKING:\n    import torch\n"),
    "bytes": (house_rules.encoding_faults, "with path.open('rb') as file:\n    pass\n"),
    "a safe child": (house_rules.child_faults, "[python, '-P', '-m', 'nearpeak']\n"),
    "a table": (house_rules.state_faults, "RATES = {'a': 1}\n"),
    "a folder of this repository": (house_rules.word_faults, "tests/golden/" + "work/gemm.csv\n"),
}


@pytest.mark.parametrize(("rule", "source", "words"), SOURCES.values(), ids=list(SOURCES))
def test_seeded_fault_in_a_source_is_seen(rule, source, words):
    assert any(words in fault for fault in rule(source))


@pytest.mark.parametrize(("rule", "source"), FINE.values(), ids=list(FINE))
def test_good_source_is_left_alone(rule, source):
    assert list(rule(source)) == []


GOLDEN = "tests/golden/test_work_rows.py::test_rule_and_arithmetic_give_the_written_value"
SOURCED = "tests/conventions/test_catalogue.py::test_every_figure_of_a_device_file_has_a_source"
LAWS = "tests/laws/test_bound_laws.py"
UNITS, TERMS = "tests/unit/test_units.py", "tests/unit/bounds/test_theory_terms.py"
MUTANTS = {
    "giga is a million": ("units.py", '"G": 10**9', '"G": 10**6', UNITS),
    "binary is decimal": ("units.py", '"Ki": 2**10', '"Ki": 10**3', UNITS),
    "FMA is one FLOP": ("ops/shared/arithmetic.py", 'name}": 2 * products', 'name}": products', GOLDEN),
    "axes swapped": ("ops/product/gemm.py", "elements, a * m * k)", "elements, a * m * n)", GOLDEN),
    "output not written": ("ops/product/gemm.py", "write_bytes=out.bytes(elements)", "write_bytes=0", GOLDEN),
    "sum forgets writes": (
        "core/work/work.py", "self.write_bytes + other.write_bytes", "self.write_bytes", "tests/laws/test_work_laws.py",
    ),
    "missing peak answered": (
        "core/work/target.py", "raise NotModelledError(",
        'return Peak(flop_per_s=1e30, flop_per_clock=0, clock_hz=0, source="") or (', LAWS,
    ),
    "smallest term limits": ("bounds/case_bound.py", "max((term for", "min((term for", LAWS),
    "writes are free": (
        "bounds/terms/memory_traffic.py", "(reads + writes) / bandwidth_of", "reads / bandwidth_of", TERMS,
    ),
    "credit below zero": (
        "bounds/terms/term_column.py", "max(size_bytes - cache_bytes, 0)", "size_bytes - cache_bytes", TERMS,
    ),
    "storage is twice as large": (
        "bounds/terms/storage_capacity.py", "words = size_bytes * 8 / bits", "words = size_bytes * 16 / bits",
        "tests/unit/bounds/test_theory_proof.py",
    ),
    "groups are read three times": (
        "bounds/terms/group_barrier.py", "again_s = barrier.group_count", "again_s = 2 * barrier.group_count",
        "tests/brute_force/test_schedules.py::test_a_step_that_divides_a_tensor_by_its_own_sum_reads_part_of_it_again",
    ),
    "views add up": (
        "core/work/storage_unions.py", "max(0, start + size - max(start, reached))", "size",
        "tests/brute_force/test_schedules.py::test_no_schedule_of_200_random_graphs_beats_a_proved_term",
    ),
    "slowest unit": ("bounds/terms/unit_rates.py", "max(rates)", "min(rates)", LAWS),
    "partial products free": ("core/work/dtype.py", '("tensor.fp16", 3)', '("tensor.fp16", 1)', LAWS),
    "upward import": (
        "core/work/case.py", "from nearpeak.base.canonical_json",
        "from nearpeak.ops import OPS  # noqa\nfrom nearpeak.base.canonical_json",
        "tests/conventions/test_layers.py::test_import_contracts_hold",
    ),
    "circle by a lazy import": (
        "core/work/scheme.py", "return high * wide",
        "from nearpeak.core.work.dtype import DType  # noqa\n        return high * wide",
        "tests/conventions/test_layers.py::test_no_modules_import_each_other_in_a_circle_lazily_or_for_types_either",
    ),
    "rates that disagree": (
        "targets/h100_sxm.toml", "989.4 TFLOP/s", "889.4 TFLOP/s", SOURCED,
    ),
    "figure without source": ("targets/h100_sxm.toml", "source =", "origin =", SOURCED),
}  # fmt: skip


UNUSED = ("web", "fixtures", "replay", "capture", "report", "measure")


@pytest.fixture(scope="module")
def copy(request, tmp_path_factory):
    """A folder with a copy of what the checks need; those of the faults that this run plants pass there."""
    folder = tmp_path_factory.mktemp("copy")
    copied_to(folder)
    own = [item for item in request.session.items if item.path == request.path and "copy" in item.fixturenames]
    planted = [item.callspec.params["name"] for item in own]
    assert outcome(folder, *sorted({MUTANTS[name][-1] for name in planted})) == 0, "they fail without a fault"
    return folder


def file_of_check(values):
    return MUTANTS[values[0]][-1].partition("::")[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of_each([(name,) for name in MUTANTS], file_of_check))
def test_a_seeded_fault_in_the_package_is_caught(name, copy):
    assert outcome_of_fault(copy, name) == 1, "not caught (0), or no check ran"


def copied_to(folder):
    """Copy what the checks need of the repository."""
    shutil.copytree(PACKAGE, folder / "src" / "nearpeak", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__", *UNUSED))
    for file in ("pyproject.toml", "STYLE.md", "GLOSSARY.md"):
        shutil.copy(ROOT / file, folder / file)


def outcome_of_fault(folder, name):
    """The exit code of its check over the copy with the fault `name`, which is taken out again."""
    place, old, new, check = MUTANTS[name]
    file = folder / "src" / "nearpeak" / place
    text = file.read_text(encoding="utf-8")
    assert old in text, f"{name}: {place} no longer holds {old!r}"
    file.write_text(text.replace(old, new), encoding="utf-8")
    # Only the sound copy leaves bytecode behind, so that a fault is in no file that is read again.
    code = outcome(folder, check, PYTHONDONTWRITEBYTECODE="1")
    shutil.copy2(PACKAGE / place, file)  # with its time, by which its bytecode is known to fit
    return code


def outcome(folder, *checks, **variables):
    """The exit code of checks over the copy."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        "-m",
        "not long",
        *checks,
    ]
    # An installed nearpeak brings a plug-in, which would load the faulty package before any check runs.
    quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": "", **variables}
    environment = {"PYTHONPATH": str(folder / "src"), **quiet}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=300)
    return done.returncode
