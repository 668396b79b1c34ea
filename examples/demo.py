"""`make demo`: real models in, speed-of-light reports out, for four GPUs and the CPU of this machine."""

import sys
import time
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

import nearpeak
from nearpeak.errors import SpecError
from nearpeak.report import render
from nearpeak.units import show

TARGETS = ("h200_sxm", "b200_sxm", "mi300x", "l40s", "cpu")
OUT = Path("build/demo")
ONNX_FILE = "backend/test/data/light/light_densenet121.onnx"
WORKLOADS = (
    ("resnet-50-inference", "resnet-50", {"batch": 32}),
    ("resnet-50-training", "resnet-50", {"batch": 32, "step": "train"}),
    ("llama-3-8b-prefill", "llama-3-8b", {"sequence": 2048}),
    ("llama-3-8b-decode", "llama-3-8b", {"step": "decode", "kv": 4096}),
    ("llama-3-8b-training", "llama-3-8b", {"step": "train", "sequence": 2048}),
    ("densenet-121-onnx", "onnx", {}),
)


def main() -> None:
    """Capture, bound and report every workload, and say where the pages are."""
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
    console.print(f"\n{len(WORKLOADS)} reports in {time.monotonic() - start:.0f} s. Open them in a browser:")
    for title, _, _ in WORKLOADS:
        console.print(f"  {OUT / title}.html", highlight=False)
    console.print("\nThe same in the terminal, for any model and target:")
    console.print("  .venv/bin/nearpeak analyze resnet-50 --batch 32 --target h200_sxm", highlight=False)
    console.print("  .venv/bin/nearpeak show targets", highlight=False)


def _line(title: str, analysis: nearpeak.Analysis) -> str:
    """Return one workload in one line: bound and limiter per target."""
    sign = "" if analysis.complete else "≥ "
    parts = [f"{one.target.split('_')[0]} {sign}{show(one.bound_s, 's')}" for one in analysis.targets]
    return f"{title}: covers {analysis.covered_count} of {analysis.call_count} calls\n  " + ", ".join(parts)


def _cpu(console: Console) -> nearpeak.Target:
    """Return the CPU of this machine, measuring its roofs when that was not done yet."""
    try:
        return nearpeak.target("cpu")
    except SpecError:
        console.print("measuring what this CPU can do, once (about 25 s) …")
        from nearpeak.cli.calibrate import roofs

        roofs()
        return nearpeak.target("cpu")


def _onnx_file() -> Path:
    """Return a real ONNX file that the onnx package ships."""
    found = find_spec("onnx")
    if found is None or found.origin is None:
        sys.exit("demo: the onnx package is absent; install nearpeak[onnx]")
    return Path(found.origin).parent / ONNX_FILE


if __name__ == "__main__":
    main()
