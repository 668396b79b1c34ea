"""Captures every model type that transformers knows, each in a child process; writes why those that fail do."""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks._figures import FOLDER, ROOT, Figure
from nearpeak.errors import NearpeakError
from nearpeak.frontends.child_capture import run_isolated

FIGURES = (
    "architectures_loadable", "architectures_forward", "architectures_forward_all_inputs", "architectures_train",
    "architectures_largest_cpu_seconds", "architectures_largest_memory",
)  # fmt: skip
RECORDS = FOLDER.parent / "architectures.json"
"""One record per model type, in the order of their names: for the page of coverage."""
_PRELOAD = (
    "torch", "transformers", "transformers.models.auto.modeling_auto", "transformers.modeling_utils",
    "transformers.modeling_layers", "benchmarks._architecture_record",
)  # fmt: skip


def measure() -> Iterator[Figure]:
    """Yield the figures of a whole sweep."""
    found = list(sweep())
    save(found)
    yield from figures(found)


def sweep(names: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the record of each model type, of all of them when none is named."""
    for name in names or run_isolated(
        "nearpeak.frontends.huggingface.model_type:model_types", {}, "model types", preload=_PRELOAD
    ):
        yield record_of(name)


def record_of(name: str) -> dict[str, Any]:
    """Return the record of one model type; a child that ended without an answer is a cause like any other."""
    function = "benchmarks._architecture_record:architecture_record"
    try:
        found: dict[str, Any] = run_isolated(function, {"name": name}, name, preload=_PRELOAD)
    except NearpeakError as error:
        failed = {"ok": False, "cause": str(error)[:300], "missing": False, "cpu_s": 0.0}
        return {"type": name, "forward": failed, "train": failed, "peak_bytes": 0}
    return found


def figures(found: Sequence[dict[str, Any]]) -> Iterator[Figure]:
    """Yield counts over the types that this machine's packages can load, and the largest costs of one capture."""
    loadable = [one for one in found if not one["forward"].get("missing")]
    total = len(loadable)
    forward = [one for one in loadable if one["forward"]["ok"]]
    whole = [one for one in forward if not one["forward"]["lacking"]]
    train = [one for one in loadable if one["train"]["ok"]]
    yield Figure(name=FIGURES[0], value=total, unit="model types", bar="", passed=True)
    yield _share(FIGURES[1], len(forward), total, 0.95)
    yield _share(FIGURES[2], len(whole), total, 0.95)
    yield _share(FIGURES[3], len(train), total, 0.93)
    cpu_s = max(one[step]["cpu_s"] for one in loadable for step in ("forward", "train"))
    yield Figure(name=FIGURES[4], value=cpu_s, unit="s", bar="<= 60 s", passed=cpu_s <= 60)
    memory = max(one["peak_bytes"] for one in loadable)
    yield Figure(name=FIGURES[5], value=memory / 1e9, unit="GB", bar="<= 1 GB", passed=memory <= 1e9)


def _share(name: str, count: int, total: int, wanted: float) -> Figure:
    return Figure(
        name=name,
        value=100 * count / total,
        unit="%",
        bar=f">= {wanted:.0%} of {total}",
        passed=count >= wanted * total,
    )


def save(found: Sequence[dict[str, Any]], path: Path = RECORDS) -> None:
    """Write the records, one line each."""
    lines = ",\n".join(json.dumps(one, sort_keys=True) for one in sorted(found, key=lambda one: str(one["type"])))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main() -> None:
    """Sweep the types that are named, or all that have no good record yet; then print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.architectures", description=__doc__)
    parser.add_argument("types", nargs="*", help="model types; those without a good record when none is named")
    parser.add_argument(
        "--records", type=Path, default=RECORDS, help=f"file to go on with ({RECORDS.relative_to(ROOT)})"
    )
    options = parser.parse_args()
    old = json.loads(options.records.read_text(encoding="utf-8")) if options.records.is_file() else []
    known = {one["type"]: one for one in old}
    every = run_isolated("nearpeak.frontends.huggingface.model_type:model_types", {}, "model types", preload=_PRELOAD)
    good = {name for name, one in known.items() if one["forward"]["ok"] and one["train"]["ok"]}
    for one in sweep(options.types or [name for name in every if name not in good]):
        known[one["type"]] = one
        save(list(known.values()), options.records)
        print(one["type"], *(one[step].get("cause") or "ok" for step in ("forward", "train")), sep="\t", flush=True)
    for figure in figures(list(known.values())):
        print(f"{figure.name} = {figure.shown()} ({figure.bar})")


if __name__ == "__main__":
    main()
