"""Predicted cost of one break against ONNX Runtime with the break forced: 40 planted in ten models, on one thread.

The cost is that of running the pieces in sequence less that of the whole, both as CPU time of the calling thread, the
least of interleaved runs. Predictions rest on the roofs and probes of this machine (`nearpeak calibrate roofs`) and on
the time of a session of one node on one element, which is measured first.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime

from benchmarks._break_models import MODELS, model_of
from benchmarks._figures import Figure
from nearpeak.api.measured_analysis import probe_cpu
from nearpeak.conversion.model_graph import model_graph
from nearpeak.conversion.onnx_pieces import feeds_of, in_pieces, pieces_of
from nearpeak.conversion.plan_cost import EngineHost, PlanCosts, Split
from nearpeak.conversion.plan_cost import pieces_of as positions_of
from nearpeak.measurement.machine.onnx_session import session_of
from nearpeak.prediction.host_costs import HostCost
from nearpeak.targets import CPU, target_of

FIGURES = ("conversion_break_within_twice", "conversion_break_order")
BREAKS_PER_MODEL = 4
REPEATS = 30
SEED = 20261129


def measure() -> Iterator[Figure]:
    """Yield how many predicted costs are within a factor of two, and how well their order agrees."""
    probe_cpu()
    pairs = list(planted(SEED))
    within = sum(0.5 <= predicted_s / measured_s <= 2 for _, predicted_s, measured_s in pairs if measured_s > 0)
    order = kendall([pair[1] for pair in pairs], [pair[2] for pair in pairs])
    share = 100 * within / len(pairs)
    yield Figure(
        name="conversion_break_within_twice", value=share, unit=f"% of {len(pairs)} breaks", bar=">= 90%",
        passed=share >= 90, seed=SEED,
    )  # fmt: skip
    yield Figure(name="conversion_break_order", value=order, unit="tau", bar=">= 0.8", passed=order >= 0.8, seed=SEED)


def planted(seed: int) -> Iterator[tuple[str, float, float]]:
    """Yield each break with its predicted and its measured cost."""
    draw, target, run = random.Random(seed), target_of(CPU), run_cost()
    print(f"a run of a session costs {1e6 * run.usual_s:.1f} µs", flush=True)
    host = EngineHost(engine=run, left_piece=run, left_call=HostCost(0, 0, 0), runs_ahead=False, copies_all=True)
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(model_of(name), str(path))
            costs = PlanCosts(model_graph(path), target, host)
            nodes = [node for node, calls in enumerate(costs.graph.calls) if calls]
            for node in sorted(draw.sample(nodes, BREAKS_PER_MODEL)):
                taken = tuple(other != node for other in range(len(costs.graph.keys)))
                whole = costs.plan(Split(taken=(True,) * len(taken))).total
                predicted_s = costs.plan(Split(taken=taken)).total.less(whole).time_s
                measured_s = forced_s(path, costs.graph, taken)
                label = f"{name}, {costs.graph.keys[node]}"
                print(f"{label}: predicted {1e6 * predicted_s:.1f} µs, measured {1e6 * measured_s:.1f} µs", flush=True)
                yield label, predicted_s, measured_s


def forced_s(path: Path, graph: Any, taken: tuple[bool, ...]) -> float:
    """Return the CPU time that the forced break adds to a run."""
    model = onnx.load(str(path))
    protos = [SimpleNamespace(key=node.name, proto=node) for node in model.graph.node]
    groups = [(taken[piece[0]], [protos[node] for node in piece]) for piece in positions_of(graph, taken)]
    pieces = pieces_of(onnx, model, groups)
    whole = session_of(onnxruntime, path, 1)
    feeds = feeds_of(whole)
    assert feeds is not None
    feeds = {name: np.random.default_rng(0).standard_normal(value.shape, np.float32) for name, value in feeds.items()}
    apart = in_pieces([(piece, session_of(onnxruntime, piece.model, 1)) for piece in pieces], feeds)
    names = [item.name for item in whole.get_outputs()]
    together_s, apart_s = float("inf"), float("inf")
    for _ in range(REPEATS):
        together_s = min(together_s, _thread_s(lambda: whole.run(names, feeds)))
        apart_s = min(apart_s, _thread_s(apart))
    return apart_s - together_s


def run_cost() -> HostCost:
    """Return the CPU time of one run of a session that does next to nothing."""
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Neg", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "one", [info("x", 1, [1])], [info("y", 1, [1])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=10)
    session = session_of(onnxruntime, model.SerializeToString(), 1)
    feeds = {"x": np.ones(1, np.float32)}
    times = sorted(_thread_s(lambda: session.run(["y"], feeds)) for _ in range(2000))
    return HostCost(times[0], statistics.median(times), times[-100])


def _thread_s(run: Callable[[], Any]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def kendall(left: list[float], right: list[float]) -> float:
    """Return Kendall's rank correlation: pairs in the same order less those in the other, over all.

    >>> kendall([1, 2, 3], [1, 3, 2])
    0.3333333333333333
    """
    pairs = [(a, b) for a in range(len(left)) for b in range(a)]
    signs = sum(np.sign(left[a] - left[b]) * np.sign(right[a] - right[b]) for a, b in pairs)
    return float(signs) / len(pairs)
