"""Importer of vLLM's offline benchmarks (`vllm bench latency` and `vllm bench throughput`, `--output-json`)."""

from pathlib import Path

from nearpeak.core.history.stored_run import TIME, Metric, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import ForeignRun, foreign
from nearpeak.store.json_tree import Tree
from nearpeak.store.serving_metrics import rate

_VERSION = 1
_RATES = ("requests_per_second", "tokens_per_second")


def _read(tree: Tree, path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the file, which names no model: the file's name stands for it."""
    if tree.has("latencies"):
        samples = [_set(path, "latency", TIME, tree.get("latencies").positives())]
    elif tree.has("elapsed_time"):
        samples = [
            _set(path, "throughput", rate(key), (tree.get(key).positive(),), "one value for the run")
            for key in _RATES
            if tree.has(key)
        ]
    else:
        raise SpecError(f"{tree.where}: holds neither 'latencies' nor 'elapsed_time'")
    return (ForeignRun(samples=tuple(samples), lost=tree.lost()),)


def _set(path: Path, mode: str, metric: Metric, values: tuple[float, ...], note: str = "") -> SampleSet:
    if not values:
        raise SpecError(f"{path.name}: its list of latencies is empty")
    return SampleSet(
        case=f"vllm:{mode}:{path.stem}", label=f"{path.stem} {mode}", metric=metric, workload=path.stem, values=values,
        testbed=Testbed(name=f"vllm bench {mode}"), note=note,
    )  # fmt: skip


IMPORTER = foreign(
    "vllm_offline", "vLLM bench latency and bench throughput", _VERSION, _read,
    marks=('"avg_latency"|"elapsed_time"', '"latencies"|"requests_per_second"'),
    never=('"completed"',),
)  # fmt: skip
