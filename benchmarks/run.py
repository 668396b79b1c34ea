"""Run the benchmarks and write one JSON file per figure; figures of the same commit are not measured twice."""

import argparse
import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

from benchmarks._figures import FOLDER, ROOT, Figure, stored

NOT_BENCHMARKS = ("run", "quote", "load", "step_library")


def main(arguments: list[str] | None = None) -> int:
    """Measure what is asked for and return 0 when every figure of it reaches its bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("files", nargs="*", help="benchmarks to run by file stem; all when none is named")
    parser.add_argument("--again", action="store_true", help="measure again what this commit has already measured")
    options = parser.parse_args(arguments)
    names = options.files or benchmark_names()
    unknown = sorted(set(names) - set(benchmark_names()))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(benchmark_names())}")
    commit = commit_of_sources()
    failures = [name for name in names if not run_file(name, commit, again=options.again)]
    wanted = {figure for name in names for figure in _module(name).FIGURES}
    missed = sorted(name for name, record in stored().items() if name in wanted and not record["passed"])
    for name in missed:
        print(f"bar missed: {name} = {stored()[name]['value']:.4g}, wanted {stored()[name]['bar']}")
    return 1 if failures or missed else 0


def benchmark_names() -> list[str]:
    """Return the file stems of all benchmarks."""
    files = Path(__file__).parent.glob("*.py")
    return sorted(f.stem for f in files if not f.stem.startswith("_") and f.stem not in NOT_BENCHMARKS)


def run_file(name: str, commit: str, *, again: bool) -> bool:
    """Measure the figures of one benchmark, each written as soon as it is known; say whether all came."""
    module = _module(name)
    wanted = set(module.FIGURES)
    known = {figure for figure, record in stored().items() if record["commit"] == commit}
    if not again and "+" not in commit and wanted <= known:
        print(f"{name}: already measured at {commit}", flush=True)
        return True
    print(f"{name}: measuring …", flush=True)
    try:
        seen = {save(figure, commit) for figure in module.measure()}
    except Exception as error:  # one broken benchmark must not keep the others from running
        print(f"{name}: failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return False
    if seen != wanted:
        print(f"{name}: FIGURES and what measure() gave differ in {', '.join(sorted(seen ^ wanted))}", file=sys.stderr)
    return seen == wanted


def save(figure: Figure, commit: str) -> str:
    """Write the figure with commit, date and machine beside it, and return its name."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    record = asdict(figure) | {"commit": commit, "date": today, "machine": machine_in_words()}
    FOLDER.mkdir(parents=True, exist_ok=True)
    part = FOLDER / f"{figure.name}.json.part"
    part.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(FOLDER / f"{figure.name}.json")
    print(f"  {figure.name} = {figure.shown()} ({'passed' if figure.passed else 'MISSED'}: {figure.bar})", flush=True)
    return figure.name


def commit_of_sources() -> str:
    """Return the last commit that changed what is measured, marked `+edits` when the tree differs from it.

    Commits of documents and of figures alone do not make a figure old.
    """
    paths = ["--", "src", "benchmarks", "examples", "pyproject.toml", "constraints.txt"]
    commit = _git("log", "-1", "--format=%h", *paths)
    return f"{commit or 'unknown'}+edits" if not commit or _git("status", "--porcelain", *paths) else commit


def machine_in_words() -> str:
    """Return what a reader needs to judge a figure: cores, architecture, processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.exists() else []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = facts.get("flags", "").split()
    kind = "virtual machine" if "hypervisor" in flags else "machine"
    vectors = next((words for flag, words in _VECTORS.items() if flag in flags), "")
    model = ", ".join(part for part in (facts.get("model name", platform.processor()), vectors) if part)
    return f"{os.cpu_count()}-core {platform.machine().replace('_', '-')} {kind}" + (f", {model}" if model else "")


_VECTORS = {"amx_tile": "AMX", "avx512_bf16": "AVX-512 BF16", "avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name}")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
