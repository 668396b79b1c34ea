"""Importer of onnxruntime profiles (`enable_profiling`): model runs and nodes, in whole microseconds."""

from pathlib import Path

from nearpeak.core.history.stored_run import TIME, SampleSet, Testbed
from nearpeak.errors import SpecError
from nearpeak.store.foreign_runs import ForeignRun, Rows, foreign
from nearpeak.store.json_tree import Tree

_VERSION = 2
_END = "_kernel_time"
_TESTBED = Testbed(name="onnxruntime", policy={"profiled": True})


def _read(tree: Tree, path: Path) -> tuple[ForeignRun, ...]:
    """Return the run of the file, which names no device: the model's runs and each node's.

    The first of several runs is warm-up. A node with a time of 0 is shorter than the clock can tell.
    """
    runs: list[float] = []
    nodes: dict[tuple[str, str, str], list[float]] = {}
    providers = set()
    rows = Rows(tree)
    for event in tree.each():
        with rows.guarded():
            kind, name = event.get("cat").text(), event.get("name").text()
            if kind == "Session" and name == "model_run":
                runs.append(event.get("dur").positive() * 1e-6)
            elif kind == "Node" and name.endswith(_END):
                args = event.get("args")
                operator, provider = args.get("op_name").text(), args.get("provider").text()
                providers.add(provider)
                shapes = args.maybe("input_type_shape")
                key = (name.removesuffix(_END), operator, str(shapes.plain()) if shapes else "")
                nodes.setdefault(key, []).append(event.get("dur").number() * 1e-6)
    lost = rows.lost(runs)
    if not runs:
        raise SpecError(f"{tree.where}: holds no 'model_run'; profile at least one run")
    model = path.stem
    whole = SampleSet(
        case=f"onnxruntime:{model}", label=model, metric=TIME, testbed=_TESTBED, workload=model,
        values=tuple(runs[1:] or runs), channels={"warmup_s": tuple(runs[:1])} if len(runs) > 1 else {},
    )  # fmt: skip
    parts = tuple(_node(model, key, values) for key, values in nodes.items())
    stack = (("execution providers", ", ".join(sorted(providers))),) if providers else ()
    return (ForeignRun(samples=(whole, *parts), stack=stack, lost=(*lost, *tree.lost())),)


def _node(model: str, key: tuple[str, str, str], values: list[float]) -> SampleSet:
    name, operator, shapes = key
    timed = min(values) > 0
    return SampleSet(
        case=f"onnxruntime:{model}:{name}:{shapes}", label=f"{model} {name}", metric=TIME, testbed=_TESTBED,
        values=tuple(values) if timed else (), parameters={"op_name": operator, "input_type_shape": shapes},
        workload=operator, outcome="budget" if timed else "unsupported",
        note="" if timed else "shorter than the microsecond that the clock can tell",
    )  # fmt: skip


IMPORTER = foreign("onnxruntime", "onnxruntime, profile", _VERSION, _read, marks=('"cat"', '"Session"', '"model_run"'))
