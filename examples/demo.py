"""`make demo`: real models in, speed-of-light reports out, for four GPUs and this CPU; measurements into a store."""

import sys
import time
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

import nearpeak
from nearpeak.api.measured_analysis import measure
from nearpeak.core.history.stored_run import Revision
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.reports import render
from nearpeak.units import show

TARGETS = ("h200_sxm", "b200_sxm", "mi300x", "l40s", "cpu")
OUT = Path("build/demo")
STORE = OUT / "history.db"
SITE = OUT / "dashboard"
ONNX_FILE = "backend/test/data/light/light_densenet121.onnx"
WORKLOADS = (
    ("resnet-50-inference", "resnet-50", {"batch": 32}),
    ("resnet-50-training", "resnet-50", {"batch": 32, "step": "train"}),
    ("llama-3-8b-prefill", "llama-3-8b", {"sequence": 2048}),
    ("llama-3-8b-decode", "llama-3-8b", {"step": "decode", "kv": 4096}),
    ("llama-3-8b-training", "llama-3-8b", {"step": "train", "sequence": 2048}),
    ("densenet-121-onnx", "onnx", {}),
)


MEASURED = (
    nearpeak.case("gemm", m=512, n=512, k=512, dtype="fp32"),
    nearpeak.case("gemm", m=64, n=2048, k=2048, dtype="fp32"),
    nearpeak.case("softmax", rows=1024, columns=1024, dtype="fp32"),
    nearpeak.case("layer_norm", rows=1024, hidden=1024, dtype="fp32"),
)


def main() -> None:
    """Capture, bound and report every workload, measure some cases, and say what to type next."""
    start = time.monotonic()
    console = Console()
    OUT.mkdir(parents=True, exist_ok=True)
    targets = [nearpeak.target(name) for name in TARGETS if name != "cpu"] + [_cpu(console)]
    console.print("[bold]Each line: the least time that nothing can beat, on each target[/bold]")
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        for title, model, options in progress.track(WORKLOADS, description="capturing and bounding"):
            workload = nearpeak.capture(_onnx_file() if model == "onnx" else model, **options)
            analysis = nearpeak.analyze(workload, targets)
            (OUT / f"{title}.html").write_text(render(analysis, "html"), encoding="utf-8")
            (OUT / f"{title}.json").write_text(render(analysis, "json"), encoding="utf-8")
            console.print(_line(title, analysis), soft_wrap=True, highlight=False)
    console.print(f"\n{len(WORKLOADS)} reports in {_since(start)}. Open them in a browser:")
    for title, _, _ in WORKLOADS:
        console.print(f"  {OUT / title}.html", highlight=False)
    _measure(console)
    console.print(f"\nAll of the demo took {_since(start)}, besides the installation.")
    console.print("\nThe same in the terminal, for any model and target:")
    console.print("  .venv/bin/nearpeak analyze resnet-50 --batch 32 --target h200_sxm", highlight=False)
    console.print("  .venv/bin/nearpeak show targets", highlight=False)


def _since(start: float) -> str:
    return f"{time.monotonic() - start:.0f} s"


def _line(title: str, analysis: nearpeak.Analysis) -> str:
    """Return one workload in one line: bound and limiter per target."""
    sign = "" if analysis.complete else "≥ "
    parts = [f"{one.target.split('_')[0]} {sign}{show(one.bound_s, 's')}" for one in analysis.targets]
    return f"{title}: covers {analysis.covered_count} of {analysis.call_count} calls\n  " + ", ".join(parts)


def _measure(console: Console) -> None:
    """Measure some cases on this CPU, and keep the samples in a store."""
    from nearpeak.store import open_store
    from nearpeak.store.importers.nearpeak_results import runs_of_now
    from nearpeak.store.maintenance import upgrade

    start = time.monotonic()
    if STORE.exists():  # of an earlier version, perhaps
        upgrade(str(STORE))
    measurements = list(measure(MEASURED, "torch_cpu"))
    with open_store(str(STORE), create=True) as store:
        results = store.ingest_all(runs_of_now(measurements, *_revision()))
    runs = sum(result.new for result in results)
    samples = sum(len(measurement.samples_s) for measurement in measurements)
    console.print(
        f"\nMeasured {len(measurements)} cases on this CPU in {_since(start)}: {samples} samples, "
        f"{runs} new run in {STORE}. Type next:"
    )
    for command in ("history", "rank"):
        console.print(f"  .venv/bin/nearpeak {command} --store {STORE}", highlight=False)
    _dashboard(console)
    console.print("A made-up history of 120 commits with planted regressions, to try the rest on:")
    console.print(f"  .venv/bin/nearpeak demo-history --store {OUT}/made_up.db", highlight=False)
    console.print(f"  .venv/bin/nearpeak regressions --store {OUT}/made_up.db --save", highlight=False)
    console.print(f"  .venv/bin/nearpeak serve --store {OUT}/made_up.db --write", highlight=False)


def _dashboard(console: Console) -> None:
    """Write the dashboard over what was measured as files, and say how it is opened and served."""
    import shutil

    from nearpeak.store import open_store
    from nearpeak.web.static_site import export_site

    start = time.monotonic()
    shutil.rmtree(SITE, ignore_errors=True)
    with open_store(str(STORE)) as store:
        export_site(store, SITE)
    console.print(f"\nThe dashboard over it, written in {_since(start)}, as files and as a server:")
    console.print(f"  {(SITE / 'index.html').resolve().as_uri()}", highlight=False, soft_wrap=True)
    serve = f".venv/bin/nearpeak serve --store {STORE} --reports {OUT} --write"
    console.print(f"  {serve}   then http://127.0.0.1:8642/", highlight=False, soft_wrap=True)


def _revision() -> tuple[Revision, ...]:
    """Return the commit of this clone; nothing where it is none."""
    from nearpeak.store.git_commits import git_revision

    try:
        return (git_revision(Path()),)
    except NearpeakError:
        return ()


def _cpu(console: Console) -> nearpeak.Target:
    """Return the CPU of this machine, measuring its roofs when that was not done yet."""
    try:
        return nearpeak.target("cpu")
    except SpecError:
        console.print("measuring what this CPU can do, once (about 25 s) …")
        from nearpeak.cli.run.calibrate import roofs

        start = time.monotonic()
        roofs(probes=False, busy=True)  # the demo shows limits alone, and goes on beside other work
        console.print(f"measured in {_since(start)}\n")
        return nearpeak.target("cpu")


def _onnx_file() -> Path:
    """Return a real ONNX file that the onnx package ships."""
    found = find_spec("onnx")
    if found is None or found.origin is None:
        sys.exit("demo: the onnx package is absent; install nearpeak[onnx]")
    return Path(found.origin).parent / ONNX_FILE


if __name__ == "__main__":
    main()
