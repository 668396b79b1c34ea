"""Graph breaks and library kernels of torch.compile, with their share of arithmetic and time."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearpeak.core.runs.measurement import Fallback

CALLS = 5
"""Calls over which kernel times are taken."""
Counted = Callable[[Callable[[], Any]], Mapping[str, int]]
"""A function that runs a call and returns the FLOP of each PyTorch operator in it, by name."""
_EXTERN = re.compile(r"extern_kernels\.(\w+)\(")
_FALLBACK = re.compile(r"torch\.ops\.aten\.(\w+)\.\w+\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCoverage:
    """The part of a function that torch.compile takes into graphs."""

    graph_count: int
    """Graphs."""
    op_count: int
    """Calls in all graphs together."""
    breaks: tuple[Any, ...]
    """Reasons of graph breaks, as PyTorch gives them."""
    total_flop: int
    """FLOP of an uncompiled call: of all operators that a rule covers, or of products alone."""
    inside_flop: int
    """FLOP in all graphs together."""
    outside_time_ratio: float
    """Share of a call's CPU time outside of graphs."""

    @property
    def outside_flop_ratio(self) -> float | None:
        """Share of the FLOP outside of graphs; none where none is counted."""
        return max(0.0, 1 - self.inside_flop / self.total_flop) if self.total_flop else None


def of_products(run: Callable[[], Any]) -> dict[str, int]:
    """Return the FLOP of products in a call, by PyTorch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        run()
    counts: Mapping[Any, int] = counter.get_flop_counts().get("Global", {})
    return {str(op).rpartition(".")[2]: int(count) for op, count in counts.items()}


def graph_coverage(
    torch: Any, function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any],
    counted: Counted = of_products,
) -> GraphCoverage:  # fmt: skip
    """Return the part of a call that torch.compile takes into graphs, which run eagerly to count FLOP and time."""
    import torch._dynamo as dynamo

    seen = {"flop": 0, "inside_s": 0.0}
    weighing = [True]

    def backend(graph: Any, _: Any) -> Any:
        def run(*arguments_of_graph: Any) -> Any:
            if weighing[0]:
                results: list[Any] = []
                seen["flop"] += sum(counted(lambda: results.append(graph(*arguments_of_graph))).values())
                return results[0]
            start = time.thread_time()
            result = graph(*arguments_of_graph)
            seen["inside_s"] += time.thread_time() - start
            return result

        return run

    with torch.no_grad():
        whole = counted(lambda: function(*arguments, **options))
        explained: Any = dynamo.explain(function)(*arguments, **options)
        dynamo.reset()
        compiled = torch.compile(function, backend=backend, dynamic=False)
        compiled(*arguments, **options)
        seen["flop"] = 0
        compiled(*arguments, **options)
        weighing[0] = False
        start = time.thread_time()
        compiled(*arguments, **options)
        all_s = time.thread_time() - start
        dynamo.reset()
    return GraphCoverage(
        graph_count=int(explained.graph_count), op_count=int(explained.op_count),
        breaks=tuple(explained.break_reasons), total_flop=sum(whole.values()), inside_flop=int(seen["flop"]),
        outside_time_ratio=max(0.0, 1 - seen["inside_s"] / all_s) if all_s else 0.0,
    )  # fmt: skip


def breaks(coverage: GraphCoverage) -> list[Fallback]:
    """Return a row for everything between the graphs, then one row for each graph break."""
    if not coverage.breaks:
        return []
    between = Fallback(
        node="everything between the graphs", ran_on="python", reason=f"{len(coverage.breaks)} graph breaks",
        flop=max(0, coverage.total_flop - coverage.inside_flop), flop_ratio=coverage.outside_flop_ratio,
        time_ratio=coverage.outside_time_ratio,
    )  # fmt: skip
    rows: dict[str, Fallback] = {}
    for reason_of_break in coverage.breaks:
        frame = reason_of_break.user_stack[-1] if reason_of_break.user_stack else None
        place = f"{Path(frame.filename).name}:{frame.lineno}" if frame else "unknown line"
        lines = [line.strip() for line in str(reason_of_break.reason).splitlines() if line.strip()]
        reason = lines[0][:200] if lines else "graph break"
        rows.setdefault(place, Fallback(node=place, ran_on="python", reason=reason, flop_ratio=0.0, time_ratio=0.0))
    return [between, *rows.values()]


def library_kernels(
    torch: Any, compiled: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any],
    coverage: GraphCoverage, counted: Counted = of_products,
) -> list[Fallback]:  # fmt: skip
    """Return one row for each library kernel that compiled code calls instead of a generated one.

    The compiler prefers library kernels for products; other operators it cannot generate. Their time is that of the
    profiler's rows of the same name; time shares refer to the time inside of graphs, FLOP shares to all counted FLOP.
    """
    from torch._inductor.utils import run_and_get_code

    with torch.no_grad():
        _, sources = run_and_get_code(compiled, *arguments, **options)
        names = {name: True for text in sources for name in _EXTERN.findall(text)}
        names |= {name: False for text in sources for name in _FALLBACK.findall(text)}
        if not names:
            return []
        flop = counted(lambda: compiled(*arguments, **options))
        shares = _time_shares(torch, lambda: compiled(*arguments, **options), names)
    total, inside = coverage.total_flop, 1 - (coverage.outside_time_ratio if coverage.breaks else 0.0)
    why = {True: "a library's kernel is preferred", False: "the compiler has no code for it"}
    return [
        Fallback(
            node=f"aten.{name}", ran_on="aten", reason=why[chosen], flop=flop.get(name, 0),
            flop_ratio=min(1.0, flop.get(name, 0) / total) if total else None,
            time_ratio=inside * shares[name] if name in shares else None, chosen=chosen,
        )
        for name, chosen in names.items()
    ]  # fmt: skip


def _time_shares(torch: Any, run: Callable[[], Any], names: Mapping[str, bool]) -> dict[str, float]:
    """Return the share of each kernel in the CPU time of a call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        for _ in range(CALLS):
            run()
    events = profiled.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    taken_by = {event.key.removeprefix("aten::"): event.cpu_time_total for event in events if "aten::" in event.key}
    return {name: min(1.0, taken_by[name] / total) for name in names if name in taken_by and total}
