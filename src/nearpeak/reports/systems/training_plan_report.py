"""Report of a training plan: verdict, where the step goes, memory, what to change, alternatives and timeline."""

import json
from collections.abc import Iterator, Sequence
from math import inf

from nearpeak.core.systems.plan_answer import PlanEdit
from nearpeak.core.systems.plan_words import plan_words
from nearpeak.core.systems.rank_memory import RankMemory
from nearpeak.core.systems.system_timeline import Span
from nearpeak.core.systems.training_answer import StageTime
from nearpeak.core.systems.training_job import PlannedTraining
from nearpeak.errors import SpecError
from nearpeak.reports.brief_text import brief, ends, whole_percent
from nearpeak.reports.document import Block, Cell, Details, Document, Table, Text, Timeline, columns
from nearpeak.units import show

_COLOURS = {"forward": "dram", "backward": "matrix", "weight": "vector", "transfer": "link", "other": "other"}
_ADVICE = {
    "kernels below peak": "larger micro-batches or narrower formats raise the rate of products",
    "host": "CUDA graphs or torch.compile take launches off the host",
    "exposed tp": "a smaller tensor-parallel degree, or its collectives under the products beside them (tp_overlap)",
    "exposed pp": "fewer stages, or boundaries split over the tensor-parallel ranks (sp)",
    "exposed dp": "more micro-batches per step, or gradients reduced under the backward pass (dp_overlap)",
    "exposed ep": "expert groups inside one node",
    "exposed cp": "a smaller context-parallel degree",
    "bubble": "more micro-batches per step, or a schedule with more chunks per rank",
    "imbalance": "stages of equal time (stages=…)",
    "branch idle": "branches of equal time, or the ranks as replicas (dp)",
    "optimizer": "an optimizer sharded over the replicas (zero=1)",
    "straggler": "equal hosts; the wait grows with the number of hosts",
}
"""What lowers a part, in words."""
_ROUNDING_RATIO = 1e-9
"""Share of a step below which a difference of two sums is rounding."""
_LEAST_GAIN = 5e-4
"""Share of the step that a change must save to be shown: what prints as 0.0 % is no advice."""


_REFUSALS = {"step": "work that cannot be split so", "memory": "memory", "batch": "a batch that does not divide"}
"""Reasons for which a search leaves out plans, in words; other reasons are their own."""


def to_json(planned: PlannedTraining) -> str:
    """Return the plan as one JSON line, with what follows from its fields."""
    return json.dumps(planned.record(), allow_nan=False)


def document_of(planned: PlannedTraining) -> Document:
    """Return the plan as a document; what the verdict rests on is folded."""
    plan, time = planned.plan, planned.time
    sequences = f"{plan.global_batch:,} sequence{'s' * (plan.global_batch > 1)} of {plan.sequence:,} tokens a step"
    if planned.item != "tokens":
        sequences = (
            f"{plan.global_batch:,} {planned.item} a step: {plan.dp:,} replica{'s' * (plan.dp > 1)} × "
            f"{plan.micro_batch_count:,} micro-batch{'es' * (plan.micro_batch_count > 1)} of {plan.micro_batch:,}"
        )
    if plan.expert_load != "balanced":
        sequences += f", experts loaded {plan.expert_load.partition(' weights=')[0]}"
    how = "found by search" if planned.search else "as given"
    where = f"{planned.device_count} × {planned.target} ({planned.fabric})"
    blocks: list[Block] = [_waterfall(planned)]
    blocks += _changes(planned)
    blocks += _splits(planned)
    blocks += _frontier(planned)
    blocks += _second_order(planned)
    blocks += _goodput(planned)
    blocks.append(_trust(planned))
    blocks.append(Details("Memory by stage, stage times and source of each figure (--why)", tuple(_why(planned))))
    if time.spans:
        blocks.append(_timeline(time.spans))
    return Document(
        title=f"{planned.model}: one training step on {where}",
        subject=f"{plan_words(plan) or 'one device'} ({how}), {plan.precision}, {sequences}, stack {time.stack}",
        lead=_verdict(planned), blocks=blocks, kicker="Training plan",
        figures=_figures(planned),
    )  # fmt: skip


def _verdict(planned: PlannedTraining) -> str:
    """Return the answer in one or two sentences."""
    time, full = planned.time, planned.fullest
    step = f"{brief(time.step_s, 's')} a step ({ends(time.low_s, time.high_s, time.step_s, 's')})"
    used = "" if time.mfu is None else f", {whole_percent(time.mfu)} of the products' peak"
    cost = planned.usd_per_million_tokens
    speed = f"{time.tokens_per_s_device:,.0f} {planned.item}/s per device"
    if planned.item != "tokens":
        speed = f"{planned.tokens_per_s:,.0f} {planned.item}/s"
    if planned.scaling_ratio is not None:
        speed += f", scaling efficiency {100 * planned.scaling_ratio:.1f} %"
    words = [f"{step}, {speed}{used}; {_fit(full, planned.nearest_change)}"]
    if planned.second_order is not None:
        added = planned.second_order
        words.append(f"{added.method} adds {brief(added.added_s, 's')} ({whole_percent(added.added_s / time.step_s)})")
    if cost is not None:
        words.append(f"${cost:,.2f} per M {planned.item}")
    if planned.goodput is not None:
        words.append(f"goodput {planned.goodput.goodput_ratio:.2f}")
    if not full.fits and full.device_bytes is not None:
        return "; ".join(words) + "."
    largest = max((part for part in time.parts if part.name in _ADVICE), key=lambda part: part.time_s, default=None)
    if largest is None or not largest.time_s:
        return "; ".join(words) + "."
    share = whole_percent(largest.time_s / time.step_s)
    return "; ".join(words) + f". Largest loss: {largest.name}, {share} of the step: {_ADVICE[largest.name]}."


def _words(change: str) -> str:
    """Return a change in the words of --parallel where a field has another name there.

    >>> _words("micro_batch 1 → 2, sequence_parallel False → True")
    'micro 1 → 2, sp on'
    """
    text = change.replace("False → True", "on").replace("True → False", "off")
    for field, word in (("chunk_count", "chunks"), ("micro_batch", "micro"), ("sequence_parallel", "sp")):
        text = text.replace(field, word)
    return text


def _fit(memory: RankMemory, nearest_change: str = "") -> str:
    """Return whether the fullest rank fits, with its peak, and where it does not, the nearest plan that does."""
    peak, place = show(float(f"{memory.used_bytes:.3g}"), "B"), f"stage {memory.stage}, {memory.place}"
    if memory.device_bytes is None or memory.free_bytes is None:
        return f"peak {peak} ({place})"
    whole = show(float(f"{memory.device_bytes:.3g}"), "B")
    if memory.fits:
        return f"fits (peak {peak} of {whole}: {place})"
    near = f"nearest plan that fits: {_words(nearest_change)}" if nearest_change else "no plan on these devices fits"
    excess = show(float(f"{-memory.free_bytes:.3g}"), "B")
    return f"does not fit: {excess} too much ({peak} of {whole}: {place}); {near}"


def _figures(planned: PlannedTraining) -> list[tuple[str, str, str]]:
    """Return the figures that a page shows large."""
    time = planned.time
    rows = [
        ("step", brief(time.step_s, "s"), ends(time.low_s, time.high_s, time.step_s, "s")),
        (f"{planned.item}/s per device", f"{time.tokens_per_s_device:,.0f}", f"{planned.tokens_per_s:,.0f} in all"),
    ]
    if planned.scaling_ratio is not None:
        rows.append(("scaling efficiency", f"{100 * planned.scaling_ratio:.1f} %", "against one device"))
    if time.mfu is not None:
        rows.append(("of the products' peak", whole_percent(time.mfu), "without recomputation"))
    rows.append(("peak memory", show(float(f"{planned.fullest.used_bytes:.3g}"), "B"), planned.fullest.place))
    return rows


def _waterfall(planned: PlannedTraining) -> Table:
    """Return the parts of the step, which add up to it."""
    step_s, total_s, rows = planned.time.step_s, 0.0, []
    for part in planned.time.parts:
        if abs(part.time_s) > _ROUNDING_RATIO * step_s:  # of parts that are not there
            total_s += part.time_s
            rows.append((part.name, part.time_s, part.time_s / step_s, part.time_s / step_s, total_s, part.ground))
    heads = columns(
        "part", "#time_s|time", "#share_ratio|share", "share_bar|of the step", "+#total_s|adds up to", "~>rests on"
    )
    return Table(columns=heads, rows=rows, name="waterfall", caption="Where a step goes")


def _changes(planned: PlannedTraining) -> Iterator[Block]:
    """Yield the edits that help, and those that would but do not fit."""
    fits = planned.fullest.fits
    least = _LEAST_GAIN if fits else float("-inf")
    edits = [edit for edit in planned.edits if edit.gain_ratio is None or edit.gain_ratio >= least]
    if not planned.edits:
        return
    if not edits:
        yield Text(f"None of {len(planned.edits)} single changes is faster and fits.")
        return
    rows = [(_words(edit.change), edit.step_s, _gain(edit), _room(edit.memory.free_bytes)) for edit in edits]
    yield Table(columns=columns("~change", "#step_s|step", "#saved", "~memory"), rows=rows, name="changes",
                caption="What to change")  # fmt: skip


def _splits(planned: PlannedTraining) -> Iterator[Block]:
    """Yield the replicas that take the same items a step where tiles or branches divide the work of one replica."""
    plan = planned.plan
    shared = plan.tile_row_count * plan.tile_column_count * (plan.tp if plan.has_branches else 1)
    if shared > 1 and plan.micro_batch % shared == 0:
        yield Text(
            f"Compare with replicas instead, as many {planned.item} a step: --batch {plan.micro_batch // shared} "
            f"--parallel dp={plan.dp * shared}{f',pp={plan.pp}' * (plan.pp > 1)}.",
            "muted",
        )


def _gain(edit: PlanEdit) -> Cell:
    if edit.gain_ratio is None:
        return Cell(value=None, text="–")
    text = f"{100 * edit.gain_ratio:.1f} %"
    if not edit.is_beyond_interval:
        return Cell(value=edit.gain_ratio, text=f"{text}, within the error", kind="muted")
    if edit.gain_ratio < 0:
        return Cell(value=edit.gain_ratio, text=text, kind="muted")
    return Cell(value=edit.gain_ratio, text=text, kind="strong good")


def _room(free_bytes: int | None) -> str:
    if free_bytes is None:
        return "capacity not stated"
    amount = show(float(f"{abs(free_bytes):.3g}"), "B")
    return f"{amount} free" if free_bytes >= 0 else f"does not fit, {amount} too much"


def _frontier(planned: PlannedTraining) -> Iterator[Block]:
    """Yield the plans that no other beats, and what the search left out."""
    search = planned.search
    if search is None:
        return
    rows = []
    for result in search.front:
        cost = planned.cost_of(result.tokens_per_s)
        rows.append((
            plan_words(result.plan), Cell(value=result.tokens_per_s, text=f"{result.tokens_per_s:,.0f}"),
            _room(result.free_bytes), Cell(value=cost, text="–" if cost is None else f"{cost:,.2f}"),
        ))  # fmt: skip
    item = planned.item
    heads = ("~`plan|plan (--parallel)", f"#{item} per s", "memory", f"#usd|$ per M {item}")
    shown = len(heads) - (planned.usd_per_million_tokens is None)
    yield Table(
        columns=columns(*heads[:shown]), rows=[row[:shown] for row in rows], name="frontier",
        caption="Plans that no other beats", brief_count=6, rest="… and more with --json",
    )  # fmt: skip
    refused = ", ".join(f"{count:,} × {_REFUSALS.get(reason, reason)}" for reason, count in search.refused.items())
    yield Text(
        f"{search.legal_count:,} legal plans, {search.fitting_count:,} fit, {search.executed_count:,} timed; bounds "
        f"prove that no other is faster. Plans within the error of the best: {len(search.ties):,} timed"
        f"{f', perhaps {search.open_count:,} more' if search.open_count else ''}. Refused: {refused or 'none'}.",
        "muted",
    )


def _second_order(planned: PlannedTraining) -> Iterator[Block]:
    """Yield what a second-order optimizer adds to the step."""
    added = planned.second_order
    if added is None:
        return
    parts = {
        "factors": added.factor_s, "their all-reduce": added.reduce_s, "inverses, exposed": added.exposed_s,
        "preconditioned update": added.update_s, "ranks of the sub-grid": added.sub_grid_s,
    }  # fmt: skip
    step_s = planned.time.step_s
    rows = [(name, time_s, time_s / step_s) for name, time_s in parts.items() if time_s]
    yield Table(
        columns=columns("part", "#time_s|time a step", "#share_ratio|of the step"), rows=rows, name="second_order",
        caption=f"{added.method} adds {whole_percent(added.added_s / step_s)}",
    )  # fmt: skip
    yield Text(
        f"Inverses take {show(added.inverse_s, 's')} on the busiest rank, their hand-out {show(added.broadcast_s, 's')}"
        ", per update of the inverses.",
        "muted",
    )


def _goodput(planned: PlannedTraining) -> Iterator[Block]:
    """Yield the shares of a long run's time."""
    if planned.goodput is None:
        return
    report = planned.goodput
    rows = [(name, share.mean, share.low, share.high) for name, share in report.shares.items()]
    yield Table(
        columns=columns("use of the time", "#mean_ratio|mean", "#low_ratio|P10", "#high_ratio|P90"), rows=rows,
        name="goodput", caption="Goodput of a long run",
    )  # fmt: skip
    yield Text(
        f"A checkpoint every {_long(report.interval_s)} (best by Daly: {_long(report.daly_interval_s)}); one "
        f"failure in {_long(report.failure_interval_s)}: {report.failure_source}; {report.run_count:,} simulated "
        f"runs, seed {report.seed}. An hour of progress costs {whole_percent(report.cost_ratio)} of an hour on demand.",
        "muted",
    )


def _long(time_s: float) -> str:
    """Return a time in the unit that people use for it.

    >>> _long(52_300), _long(2.28e7), _long(90)
    ('14.5 h', '264 days', '90 s')
    """
    for unit, unit_s in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if time_s >= 2 * unit_s:
            return f"{time_s / unit_s:.3g} {unit}"
    return brief(time_s, "s")


def _trust(planned: PlannedTraining) -> Text:
    """Return what the step may be trusted for: whose data it rests on, and the nearest public measurement."""
    shares = ", ".join(f"{name} {whole_percent(share)}" for name, share in planned.time.trust.items())
    near = planned.neighbour
    if near is None:
        nearest = "no public step was compared"
    else:
        nearest = (
            f"the nearest public step, at distance {near.distance_count:.1f}, is predicted "
            f"{100 * near.error_ratio:+.0f} % off"
        )
    return Text(f"Trust: times of the step by where they come from: {shares}; {nearest}.", "muted")


def _why(planned: PlannedTraining) -> Iterator[Block]:
    """Yield what the verdict rests on."""
    heads = ("stage", "~peak at", "#allocated_bytes|tensors", "#reserved_bytes|reserved", "~>parts")
    rows = [
        (memory.stage, memory.place, memory.allocated_bytes, memory.reserved_bytes, _parts_of(memory))
        for memory in planned.memory
    ]
    yield Table(columns=columns(*heads), rows=rows, name="memory", caption="Memory of a rank of each stage at its peak")
    names = [name for name in StageTime._fields if name != "stage"]
    yield Table(
        columns=columns("stage", *(f"#{name}|{name[:-2]}" for name in names)), name="stages",
        caption="Time of one micro-batch on each stage", rows=[tuple(stage) for stage in planned.time.stages],
    )  # fmt: skip
    if planned.neighbour is not None:
        near = planned.neighbour
        yield Text(
            f"Nearest public step: {near.name}: {brief(near.measured_s, 's')} measured, {brief(near.predicted_s, 's')} "
            f"predicted; {near.distance}. Another stack or format, or a model of four times the size, is a step of "
            f"distance; another maker's or older device two. Source: {near.source}."
        )
    yield from (Text(note) for note in planned.time.notes)


def _parts_of(memory: RankMemory) -> str:
    """Return the kinds of memory at the peak, with what lies outside the framework's allocator."""
    parts = [f"{name} {show(float(f'{size:.3g}'), 'B')}" for name, size in memory.parts.items() if size]
    return ", ".join((*parts, f"outside {show(memory.context_bytes, 'B')}", _room(memory.free_bytes)))


def _timeline(spans: Sequence[Span]) -> Timeline:
    """Return ranks over time."""
    lanes = sorted({(span.rank, span.lane) for span in spans})
    places = {lane: place for place, lane in enumerate(lanes)}
    slices = [
        (places[span.rank, span.lane], round(span.start_s * 1e9), round(span.stop_s * 1e9), span.name, _kind(span.name))
        for span in spans
    ]
    return Timeline(
        rows=tuple(f"stage {rank}" + ("" if lane == "compute" else f" {lane}") for rank, lane in lanes), slices=slices,
        window_ns=max(stop for _, _, stop, _, _ in slices), colours=_COLOURS,
    )  # fmt: skip


def _kind(name: str) -> str:
    """Return the kind of a pass, whose names are chunk, letter and micro-batch.

    >>> _kind("0F3"), _kind("1B12"), _kind("0F3 from stage 0")
    ('forward', 'backward', 'transfer')
    """
    if " " in name:
        return "transfer"
    return {"F": "forward", "B": "backward", "W": "weight"}.get(name.lstrip("0123456789")[:1], "other")


def _signed(change_s: float) -> str:
    return ("+" if change_s > 0 else "−" if change_s < 0 else "") + show(abs(change_s), "s")


def difference_of(planned: PlannedTraining, before: str, name: str) -> Document:
    """Return what changed against the JSON of another plan, part by part.

    Raises:
        SpecError: the text is no such JSON.
    """
    try:
        record = json.loads(before)
        old = record["time"]
        parts = {row["name"]: float(row["time_s"]) for row in old["parts"]}
        old_s, items = float(old["step_s"]), int(old["token_count"] if "token_count" in old else old["item_count"])
    except (ValueError, TypeError, KeyError):
        parts, old_s, items = {}, 0.0, 0
    if not 0 < old_s < inf or items <= 0:
        raise SpecError(f"{name}: is no JSON of 'nearpeak plan train --json'")
    time = planned.time
    rows = []
    for part in time.parts:
        was = parts.get(part.name, 0.0)
        change_s = part.time_s - was
        if abs(change_s) < _ROUNDING_RATIO * old_s:
            change_s = 0.0
        if was or part.time_s:
            rows.append((part.name, was, part.time_s, _signed(change_s), change_s / old_s))
    rows.append(("step", old_s, time.step_s, _signed(time.step_s - old_s), (time.step_s - old_s) / old_s))
    heads = columns("part", "#before_s|before", "#now_s|now", "#change", "#of_step_ratio|of the step before")
    more = time.step_s / old_s - 1
    change = (
        f"{100 * abs(more):.1f} % {'more' if more > 0 else 'less'} time" if abs(more) >= 5e-4 else "as long as before"
    )
    verdict = f"{brief(old_s, 's')} before, {brief(time.step_s, 's')} now: {change}."
    if items != time.token_count:
        gain = planned.tokens_per_s * old_s / items - 1
        verdict += (
            f" The steps are of {items:,.0f} and {time.token_count:,} {planned.item}: "
            f"{100 * abs(gain):.1f} % {'more' if gain > 0 else 'fewer'} {planned.item} per second."
        )
    return Document(
        title=f"{planned.model}: {plan_words(planned.plan)} against {name}", lead=verdict,
        blocks=[Table(columns=heads, rows=rows, name="difference")], kicker="Training plan, compared",
    )  # fmt: skip
