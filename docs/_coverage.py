"""The page of coverage: operators, devices, architectures, public operators and problem files, with what is missing."""

import csv
import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nearpeak.core.runs.measurement import Timing
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.measurement.runners import runner_of
from nearpeak.ops import OPS, Operator, case
from nearpeak.targets import TARGETS, target_of

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "docs" / "lab"
_NOT_MEASURED = "not measured"


def coverage() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Coverage"
    yield ""
    yield "What has a rule, a reference, a runner, a sourced figure; what was tried and captured; every miss by name."
    for section in (_operators(), _devices(), _architectures(), _census(), _problem_files()):
        yield ""
        yield from section


def _operators() -> Iterator[str]:
    golden, total = _golden_rows(), Counter[str]()
    yield from ("## Operators", "")
    yield "Forward and backward: a rule of least work; – where there is no gradient, or its calls are other operators"
    yield "(that of a `gemm` is two more). Reference: float64 NumPy, forward / backward. Runner: the CPU runner times a"
    yield "directed case by the operator's PyTorch call, forward / backward. Golden rows: figures derived by hand,"
    yield "forward + backward. ATen, ONNX: names of the frameworks that become this operator."
    yield ""
    yield "| operator | forward | backward | reference | runner | golden rows | ATen | ONNX |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in OPS:
        cells = _operator_cells(OPS[name], golden)
        total.update({title: value for title, value in cells.items() if isinstance(value, int)})
        total.update({f"{title} ✓": str(value).count("✓") for title, value in cells.items()})
        rows = " + ".join(str(golden[name, phase]) for phase in OPS[name].signatures)
        shown = {**cells, "golden rows": rows}
        yield f"| [`{name}`](operators.md#{name}) | {' | '.join(map(str, shown.values()))} |"
    sums = (total["forward ✓"], total["backward ✓"], total["reference ✓"], total["runner ✓"], total["golden rows"])
    yield f"| **all {len(OPS.names())}** | {' | '.join(map(str, (*sums, total['ATen'], total['ONNX'])))} |"


def _operator_cells(operator: Operator, golden: Mapping[tuple[str, str], int]) -> dict[str, str | int]:
    phases = tuple(operator.signatures)
    references = {"forward": operator.reference, "backward": operator.backward_reference}
    return {
        "forward": "✓",
        "backward": "✓" if "backward" in phases else "–",
        "reference": " / ".join("✓" if references[phase] else "–" for phase in phases),
        "runner": " / ".join("✓" if _runs(operator, phase) else "–" for phase in phases),
        "golden rows": sum(golden[operator.name, phase] for phase in phases),
        "ATen": len(operator.aten),
        "ONNX": len(operator.onnx),
    }


def _golden_rows() -> Mapping[tuple[str, str], int]:
    found: Counter[tuple[str, str]] = Counter()
    for file in sorted((ROOT / "tests" / "golden" / "work").glob("*.csv")):
        with file.open(encoding="utf-8") as lines:
            found.update((row["op"], row["phase"]) for row in csv.DictReader(lines))
    return found


def _runs(operator: Operator, phase: str) -> bool:
    """Say whether the CPU runner can run one of the operator's directed cases."""
    runner = runner_of("torch_cpu", Timing(budget_s=0.0, least_count=1, flush_bytes=0, validate=False))
    file = ROOT / "tests" / "golden" / "operator_cases" / f"{operator.name}.jsonl"
    names = operator.signatures[phase].names()
    for line in file.read_text(encoding="utf-8").splitlines():
        row = {"dtype": "fp32", **json.loads(line)}
        try:
            found = runner.measure(case(operator.name, phase, **{n: v for n, v in row.items() if n in names}))
        except SpecError:
            continue
        if found.samples_s:
            return True
    return False


def _devices() -> Iterator[str]:
    devices = [target_of(name) for name in TARGETS.names()]
    yield from ("## Devices", "")
    yield "Matrix and vector: number formats with a stated rate. Sourced: figures read in a document of the maker;"
    yield "second-hand: figures marked † in [targets](targets.md), derived or read elsewhere."
    yield ""
    yield "| target | matrix | vector | sourced | second-hand | links | partitions and power modes |"
    yield "|---|---|---|---|---|---|---|"
    sums = Counter[str]()
    for device in devices:
        first_hand, second_hand = _figure_counts(device)
        sums.update({"first": first_hand, "second": second_hand, "parts": len(device.partitions)})
        formats = [_formats(device, f"{unit}.") for unit in ("tensor", "vector")]
        cells = (*formats, first_hand, second_hand, ", ".join(device.links) or "–", len(device.partitions) or "–")
        yield f"| [`{device.name}`](targets.md#{device.name}) | {' | '.join(map(str, cells))} |"
    yield f"| **all {len(devices)}** | | | {sums['first']} | {sums['second']} | | {sums['parts']} |"


def _formats(device: Target, unit: str) -> str:
    return " ".join(sorted(name.removeprefix(unit) for name in device.peaks if name.startswith(unit))) or "–"


def _figure_counts(device: Target) -> tuple[int, int]:
    """Return how many entries of the device's file stand in a document of its maker, and how many do not."""
    raw = tomllib.loads((ROOT / "src" / "nearpeak" / "targets" / f"{device.name}.toml").read_text(encoding="utf-8"))
    total = _source_count(raw)
    return total - len(device.unverified), len(device.unverified)


def _source_count(table: Mapping[str, Any]) -> int:
    own = sum(key == "source" or key.endswith("_source") for key in table)
    return own + sum(_source_count(value) for value in table.values() if isinstance(value, dict))


def _architectures() -> Iterator[str]:
    yield from ("## Architectures", "")
    found = _record("architectures.json")
    if found is None:
        yield f"Model types of `transformers`: {_NOT_MEASURED}; `python -m benchmarks.architectures` sweeps them."
        return
    loadable = [one for one in found if not one["forward"].get("missing")]
    lacking = {one["type"]: one["forward"]["lacking"] for one in loadable if one["forward"].get("lacking")}
    forward, train = (sum(one[step]["ok"] for one in loadable) for step in ("forward", "train"))
    whole = forward - len(lacking)
    yield f"Of the {len(found)} model types of the installed `transformers`, each by `hf:<type>` with random weights of"
    yield f"few layers, {len(loadable)} can be loaded here. Captured forward: {_share(forward, len(loadable))}; with"
    yield f"every kind of input that the type takes: {_share(whole, len(loadable))}; forward, backward and AdamW:"
    yield f"{_share(train, len(loadable))}. Types with calls that have no rule are listed too."
    causes: dict[str, list[str]] = defaultdict(list)
    for one in found:
        for cause in _causes_of_type(one):
            causes[cause].append(one["type"])
    for name, kinds in lacking.items():
        causes[f"forward: captured without its input of {', '.join(kinds)}"].append(name)
    yield from _misses("cause", "model types", causes)


def _causes_of_type(one: Mapping[str, Any]) -> Iterator[str]:
    for step in ("forward", "train"):
        if not one[step]["ok"]:
            cause = one[step]["cause"].replace(f"hf:{one['type']}", "hf:…")
            yield f"{step}: {cause}"
        yield from (f"{step}: no rule for {name}" for name in one[step].get("uncovered", ()))


def _census() -> Iterator[str]:
    yield from ("## Public operators of PyTorch and ONNX", "")
    found = _record("census.json")
    if found is None:
        yield f"{_NOT_MEASURED.capitalize()}; `python -m benchmarks.run operator_census` asks for every one."
        return
    yield "Sample inputs that PyTorch and the package onnx ship for their own tests, captured; an operator counts when"
    yield "every sample of it was captured and every call has a rule."
    titles = {
        "census_torch_forward": "functions and modules of PyTorch, forward",
        "census_torch_train": "functions and modules of PyTorch, forward and backward",
        "census_onnx": "operators of ONNX",
    }
    yield ""
    for key, title in titles.items():
        yield f"- {title}: {_share(found[key]['covered'], found[key]['total'])}"
    for key, title in titles.items():
        causes: dict[str, list[str]] = defaultdict(list)
        for name, own in found[key]["missed"].items():
            causes["; ".join(own)].append(name)
        yield from ("", f"### Missed: {title}")
        yield from _misses("cause", "operators", causes)


def _problem_files() -> Iterator[str]:
    yield from ("## Problem files", "")
    found = _record("problem_files.json")
    if found is None:
        yield f"{_NOT_MEASURED.capitalize()}; `python -m benchmarks.run problem_levels` captures all of them."
        return
    yield "Files in the convention of KernelBench, written by us, each captured in evaluation mode and as it is built."
    yield ""
    yield "| level | files | captures | captured |"
    yield "|---|---|---|---|"
    for level, row in sorted(found["levels"].items()):
        yield f"| {level} | {row['files']} | {row['captures']} | {row['captured']} |"
    yield from _misses("cause", "captures", found["missed"])


def _record(name: str) -> Any:
    file = RECORDS / name
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def _misses(first: str, second: str, causes: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield a table of causes and what they keep from being covered, the most frequent first."""
    yield ""
    if not causes:
        yield "Nothing is missing."
        return
    yield from (f"| {first} | {second} |", "|---|---|")
    for cause, names in sorted(causes.items(), key=lambda item: (-len(list(item[1])), item[0])):
        own = sorted(names)
        yield f"| {_cell(cause)} | {len(own)}: {', '.join(f'`{name}`' for name in own)} |"


def _share(count: int, total: int) -> str:
    return f"{count} of {total} ({100 * count / total:.1f} %)" if total else "none was tried"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")
