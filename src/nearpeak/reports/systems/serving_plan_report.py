"""Report of a planned service: verdict, latencies, where a step goes, and the other layouts."""

import json
from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.systems.service import PlannedServing, ServiceChoice, ServingOption
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.errors import SpecError
from nearpeak.reports.brief_text import brief, figure_of_three, whole_percent
from nearpeak.reports.document import Block, Cell, Details, Document, Table, Text, columns
from nearpeak.reports.systems.service_chart import drawing_of
from nearpeak.units import show

_NAMES = {
    "ttft": "time to first token", "tpot": "time per output token", "latency": "whole request", "queue": "in the queue",
    "itl": "gap between tokens",
}  # fmt: skip
BRIEF = ("ttft", "tpot", "latency")
"""Latencies that are shown at once; the others are folded."""
DEFINITIONS = (
    "Time to first token counts from the arrival of the request; time per output token is (last token - first token) / "
    "(tokens - 1) of a request; a gap between tokens is weighted by the sequences that see it. Requests that arrive "
    "before the steady state, and after the last arrival, do not count."
)
_ADVICE = {
    "product": "narrower weights (--weights int4; fp8 where the device has it) or a larger tensor-parallel degree",
    "attention": "a narrower cache (--kv-cache fp8)",
    "collective": "a smaller tensor-parallel degree with more replicas",
    "pointwise": "an engine that fuses more", "host": "an engine that prepares steps while the device runs",
}  # fmt: skip


_DISTANCES = {0: "this device", 1: "its architecture", 2: "its maker", 3: "another maker's"}
"""Whose data the times of kernels rest on, by steps."""


def to_json(planned: PlannedServing | ServiceChoice) -> str:
    """Return the service, or the choice, as one JSON line."""
    return json.dumps(planned.record(), allow_nan=False)


def document_of(planned: PlannedServing) -> Document:
    """Return the service as a document."""
    blocks: list[Block] = [
        _latencies(planned, BRIEF),
        *_logged(planned),
        *_classes(planned),
        *_step(planned),
        *_edits(planned),
        *_options(planned),
        *_trust(planned),
    ]
    if planned.timeline is not None:
        blocks.append(drawing_of(planned.timeline))
    blocks.append(Details("Definitions, interval and provenance (--why)", tuple(_why(planned))))
    return Document(
        title=f"{planned.model} served by {planned.device_count} × {planned.target}",
        subject=f"{planned.load}; engine {planned.engine}", lead=_verdict(planned), blocks=blocks,
        kicker="Serving plan", figures=_figures(planned),
    )  # fmt: skip


def choice_document(choice: ServiceChoice) -> Document:
    """Return services side by side, those that no other beats marked, and the best of them as its own report."""
    best, rows = choice.plans[0], []
    for plan, is_front in zip(choice.plans, choice.front, strict=True):
        option, cost = plan.best, plan.best.usd_per_million_tokens
        is_over = bool(option.missed(plan.limits_s, plan.tail))
        joules = plan.energy_j_per_token
        rows.append((
            Cell(value=is_front, text="*" if is_front else " "),
            f"{plan.device_count} × {plan.target}, {_layout(option)}",
            _rate_cell(option, is_over=is_over), _tail(option, "ttft", plan.tail), _tail(option, "tpot", plan.tail),
            "–" if cost is None else f"{cost:,.2f}",
            "–" if joules is None else brief(joules, "J"),
        ))  # fmt: skip
    tail = best.tail
    heads = ("front|", "~service", "#requests per s", f"#{tail} first", f"#{tail} token", "#usd|$ per M", "+#per token")
    counted = f"{sum(choice.front)} of {len(choice.plans)}"
    blocks: list[Block] = [
        Table(columns=columns(*heads), rows=rows, name="services", caption="Services, best first"),
        Text(f"* {counted}: no other has more requests per second at no more cost and no longer waits.", "muted"),
        *(Text(f"{words}: {reason}", "muted") for words, reason in choice.refused.items()),
    ]
    within = document_of(best)
    return Document(
        title=f"{best.model}: {len(choice.plans)} services side by side", subject=within.subject,
        lead=f"{best.device_count} × {best.target}: {within.lead}", kicker="Serving plans, compared",
        figures=within.figures,
        blocks=[*blocks, Details(f"The best: {best.device_count} × {best.target} (--why)", tuple(within.blocks))],
    )  # fmt: skip


def _rate_cell(option: ServingOption, *, is_over: bool) -> Cell:
    """Return the rate of a layout; one beyond the limits counts as 0 and says so."""
    if not option.rate_per_s or is_over:
        return Cell(value=0.0, text="misses" if option.rate_per_s else "none")
    return Cell(value=option.rate_per_s, text=figure_of_three(option.rate_per_s))


def _layout(option: ServingOption) -> str:
    """Return replicas and layout in words."""
    first = f"{option.replica_count} × ({option.layout.words})"
    if option.decode_layout is None:
        return first
    return f"prefill {first}, decode {option.decode_replica_count} × ({option.decode_layout.words})"


def _verdict(planned: PlannedServing) -> str:
    """Return the answer in one or two sentences."""
    best = planned.best
    if not best.rate_per_s:
        reached = ", ".join(
            f"{planned.tail} {_NAMES[name]} {_tail(best, name, planned.tail)} of {show(limit, 's')}"
            for name, limit in planned.limits_s.items()
        )
        return f"No rate meets the limits: at best {reached} with {_layout(best)}; limited by {best.limiter}."
    ends = (
        f" ({figure_of_three(best.low_per_s)} to {figure_of_three(best.high_per_s)})"
        if best.low_per_s < best.high_per_s
        else ""
    )
    words = [f"{figure_of_three(best.rate_per_s)} requests/s{ends} by {_layout(best)}"]
    tails = [
        f"{planned.tail} {_NAMES[name]} {_tail(best, name, planned.tail)}"
        + (f" of {show(planned.limits_s[name], 's')}" if name in planned.limits_s else "")
        for name in planned.limits_s or ("ttft", "tpot")
    ]
    words.append("at " + ", ".join(tails))
    words.append(f"{best.output_tokens_per_s:,.0f} output tokens/s")
    if best.usd_per_million_tokens is not None:
        words.append(f"${best.usd_per_million_tokens:,.2f} per M output tokens")
    if planned.energy_j_per_token is not None:
        words.append(f"{brief(planned.energy_j_per_token, 'J')} per token")
    missed = best.missed(planned.limits_s, planned.tail)
    verdict = f" The limit of {' and '.join(_NAMES[name] for name in missed)} is missed." if missed else ""
    return f"{'; '.join(words)}; limited by {best.limiter}.{verdict}"


def _tail(option: ServingOption, name: str, kind: str = "p99") -> str:
    """Return a latency in words; a dash where no request has it, as requests of one token have no time per token."""
    values = option.latencies_s.get(name)
    return brief(values[kind], "s") if values else "–"


def _figures(planned: PlannedServing) -> list[tuple[str, str, str]]:
    """Return the figures that a page shows large."""
    best = planned.best
    rows = [
        ("requests per second", figure_of_three(best.rate_per_s), f"{best.output_tokens_per_s:,.0f} output tokens/s"),
        ("p99 to the first token", _tail(best, "ttft"), f"mean {_tail(best, 'ttft', 'mean')}"),
        ("p99 per output token", _tail(best, "tpot"), f"mean {_tail(best, 'tpot', 'mean')}"),
    ]
    if best.usd_per_million_tokens is not None:
        rows.append(("per M output tokens", f"${best.usd_per_million_tokens:,.2f}", "at the price given"))
    return rows


def _latencies(planned: PlannedServing, which: Sequence[str]) -> Table:
    names = ("mean", "p50", "p90", "p99")
    rows = []
    for name in which:
        title, values = _NAMES[name], planned.best.latencies_s.get(name)
        if values:
            limit = planned.limits_s.get(name)
            rows.append((title, *(values[kind] for kind in names), "–" if limit is None else show(limit, "s")))
    heads = ("latency", *(f"#{name}_s|{name}" for name in names), "#limit")
    name, caption = ("latencies", "Latencies at that rate") if which == BRIEF else ("further", "Further latencies")
    return Table(columns=columns(*heads), rows=rows, name=name, caption=caption)


def _logged(planned: PlannedServing) -> Iterator[Block]:
    """Yield the latencies of the request log that was served beside the predicted ones."""
    if planned.logged:
        rows = [
            (_NAMES[row.name], row.statistic, row.measured_s, row.predicted_s,
             Cell(value=row.error_ratio, text=f"{100 * row.error_ratio:+.1f} %")) for row in planned.logged
        ]  # fmt: skip
        heads = columns("latency", "of", "#measured_s|measured", "#predicted_s|predicted", "#error_ratio|error")
        count = max(row.request_count for row in planned.logged)
        yield Table(columns=heads, rows=rows, name="logged", caption=f"Against the log of {count:,} requests")


def _classes(planned: PlannedServing) -> Iterator[Block]:
    """Yield the tails of priority classes, what the prefix cache saves, and replicas that follow the load."""
    best = planned.best
    for name, tails in best.class_latencies_s.items():
        words = ", ".join(f"{_NAMES[kind]} {brief(value, 's')}" for kind, value in tails.items())
        yield Text(f"{name}: p99 {words}")
    if best.reused_ratio:
        yield Text(f"prefix cache: {whole_percent(best.reused_ratio)} of the tokens of prompts need not be computed")
    if best.mean_device_count and abs(best.mean_device_count - planned.device_count) > 0.01:
        yield Text(
            f"replicas follow the load: {best.mean_device_count:.3g} of {planned.device_count} devices in the mean"
        )


def _trust(planned: PlannedServing) -> Iterator[Block]:
    """Yield what a figure may be trusted for: whose data it rests on, and the nearest public measurement."""
    words = []
    if planned.trust:
        shares = ", ".join(f"{_DISTANCES[steps]} {whole_percent(share)}" for steps, share in planned.trust.items())
        words.append(f"kernels rest on measurements of {shares}")
    if planned.is_host_assumed:
        words.append("host times of this engine are assumed ('plan calibrate-serving' fits them)")
    if planned.neighbour is not None:
        near = planned.neighbour
        error = 100 * near.error_ratio
        words.append(
            f"the nearest public point, at distance {near.distance_count:.1f}, is predicted {error:+.0f} % off"
        )
    yield Text(f"Trust: {'; '.join(words)}.")


def _step(planned: PlannedServing) -> Iterator[Block]:
    """Yield where a decode step goes, with what lowers its largest part."""
    whole_s = sum(planned.parts_s.values())
    rows = [(name, part_s, part_s / whole_s, part_s / whole_s)
            for name, part_s in sorted(planned.parts_s.items(), key=lambda item: -item[1]) if part_s]  # fmt: skip
    heads = columns("part", "#time_s|time", "#share_ratio|share", "share_bar|of the step")
    yield Table(columns=heads, rows=rows, name="step", caption="Where a decode step goes", brief_count=3)
    if rows:
        name, _, share, _ = rows[0]
        yield Text(f"{name}: {whole_percent(share)} of the step; what lowers it: {_advice(name, planned.best)}")


def _advice(name: str, option: ServingOption) -> str:
    """Return what lowers a part of a step, without formats that the layout has already."""
    if name == "product" and option.layout.weight_format not in ("bf16", "fp16"):
        return "a larger tensor-parallel degree, or weights of fewer bits"
    if name == "attention" and option.layout.kv_format.startswith("fp8"):
        return "a larger tensor-parallel degree, or shorter contexts"
    return _ADVICE[name]


def _edits(planned: PlannedServing) -> Iterator[Block]:
    """Yield changes of formats and degrees with the step that each has at the same load."""
    if not planned.edits:
        return
    rows: list[tuple[object, ...]] = []
    for edit in planned.edits:
        if edit.step_s is None:
            rows.append((edit.words, Cell(value=None, text="–"), Cell(value=None, text="–"), "–", edit.reason))
            continue
        change = edit.step_s / edit.now_s - 1
        rows.append((
            edit.words, edit.step_s, Cell(value=change, text=f"{100 * change:+.0f} %"), f"{edit.kv_token_count:,}",
            "beyond the interval" if edit.is_beyond else "within the interval",
        ))  # fmt: skip
    heads = columns("change", "#step_s|step", "#change_ratio|against now", "#cache tokens", "~+remark")
    yield Table(columns=heads, rows=rows, name="edits", caption="What to change: a decode step at the same load")


def _options(planned: PlannedServing) -> Iterator[Block]:
    """Yield the layouts that were looked at, and those that cannot serve."""
    if len(planned.options) > 1:
        rows = []
        for option in planned.options:
            cost = option.usd_per_million_tokens
            rate = _rate_cell(option, is_over=bool(option.missed(planned.limits_s, planned.tail)))
            price = Cell(value=cost, text="–" if cost is None else f"{cost:,.2f}")
            tails = (_tail(option, name, planned.tail) for name in ("ttft", "tpot"))
            rows.append((_layout(option), rate, *tails, price, option.limiter))
        first, token = (f"#{planned.tail} {name}" for name in ("first", "token"))
        heads = ("~layout", "#requests per s|requests/s", first, token, "#usd|$ per M", "~+limited by")
        yield Table(columns=columns(*heads), rows=rows, name="layouts", caption="Layouts, best first")
    for words, reason in planned.refused.items():
        yield Text(f"{words}: {reason}", "muted")


def _why(planned: PlannedServing) -> Iterator[Block]:
    """Yield what the verdict rests on."""
    low, high = planned.step_low_ratio - 1, planned.step_high_ratio - 1
    if further := [name for name in planned.best.latencies_s if name not in BRIEF]:
        yield _latencies(planned, further)
    yield Text(DEFINITIONS)
    yield Text(
        f"90 % interval of a step's time: {100 * low:+.0f} to {100 * high:+.0f} %; rates follow it the other way. "
        f"Seeds: {', '.join(map(str, planned.seeds))}. Cache of a replica: {planned.best.kv_token_count:,} tokens."
    )
    if planned.usd_per_device_hour is not None:
        source = f" ({planned.price_source})" if planned.price_source else ""
        yield Text(f"A device costs ${planned.usd_per_device_hour:,.3g} an hour{source}.")
    if planned.power_w is not None:
        request = "" if planned.request_energy_j is None else f"{brief(planned.request_energy_j, 'J')} per request; "
        yield Text(
            f"Energy: {request}a device draws {brief(planned.power_w, 'W')} in the mean of the run: "
            "kernels, waits and idle time."
        )
    if planned.neighbour is not None:
        near = planned.neighbour
        yield Text(
            f"Nearest public point: {near.name}: {brief(near.measured_s, 's')} per token measured, "
            f"{brief(near.predicted_s, 's')} predicted; {near.distance}. Another engine or format, or a model of four "
            f"times the size, is a step of distance; another maker's or older device two. Source: {near.source}."
        )
    yield from (Text(f"Assumed: {note}.") for note in planned.notes)


def difference_of(planned: PlannedServing, before: str, name: str) -> Document:
    """Return what changed against the JSON of another plan: settings, figures, and the parts of a decode step.

    Raises:
        SpecError: the text is no such JSON.
    """
    try:
        old, now = json.loads(before), planned.record()
        was, best = old["best"], planned.best
        settings = [
            (word.replace("_", " "), str(old[word]), str(now[word]))
            for word in ("model", "target", "device_count", "engine", "load") if old[word] != now[word]
        ]  # fmt: skip
        layout = f"{was['replica_count']} × ({ServingLayout(**was['layout']).words})"
        if was["decode_layout"] is not None:
            decode = f"decode {was['decode_replica_count']} × ({ServingLayout(**was['decode_layout']).words})"
            layout = f"prefill {layout}, {decode}"
        if layout != _layout(best):
            settings.append(("layout", layout, _layout(best)))
        rate, latencies = float(was["rate_per_s"]), was["latencies_s"]
        rows = [("requests per second", figure_of_three(rate), figure_of_three(best.rate_per_s))]
        rows += [
            (f"p99 {_NAMES[kind]}", brief(float(latencies[kind]["p99"]), "s"), _tail(best, kind))
            for kind in best.latencies_s if kind in latencies
        ]  # fmt: skip
        cost, joules = best.usd_per_million_tokens, planned.energy_j_per_token
        if cost is not None and was["usd_per_million_tokens"] is not None:
            rows.append(("$ per M output tokens", f"{float(was['usd_per_million_tokens']):,.2f}", f"{cost:,.2f}"))
        if joules is not None and old["energy_j_per_token"] is not None:
            rows.append(("energy per token", brief(float(old["energy_j_per_token"]), "J"), brief(joules, "J")))
        parts = {part: (float(old["parts_s"][part]), part_s) for part, part_s in planned.parts_s.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise SpecError(f"{name}: is no JSON of 'nearpeak plan serve --json'") from None
    gain = best.rate_per_s / rate - 1 if rate else 0.0
    heads = columns("figure", "#before", "#now")
    return Document(
        title=f"{planned.model}: {_layout(best)} against {name}",
        lead=f"{100 * gain:+.1f} % requests per second{_step_change(parts)}.", kicker="Serving plan, compared",
        blocks=[
            *([Table(columns=columns("setting", "~before", "~now"), rows=settings, name="settings")] * bool(settings)),
            Table(columns=heads, rows=rows, name="difference"),
            Table(columns=columns("part", "#before_s|before", "#now_s|now", "#change"), name="parts",
                  caption="A decode step of each, with the sequences that each decodes at once",
                  rows=[(part, old_s, new_s, _signed(new_s - old_s)) for part, (old_s, new_s) in parts.items()
                        if old_s or new_s]),
        ],
    )  # fmt: skip


def _step_change(parts: Mapping[str, tuple[float, float]]) -> str:
    """Return how a decode step changed, and by which part of it most."""
    before_s, now_s = (sum(pair[place] for pair in parts.values()) for place in (0, 1))
    name, (old_s, new_s) = max(parts.items(), key=lambda item: abs(item[1][1] - item[1][0]))
    if abs(new_s - old_s) < 1e-3 * before_s:
        return "; a decode step takes as long as before"
    return (
        f"; a decode step takes {brief(now_s, 's')} instead of {brief(before_s, 's')}, most of it by {name} "
        f"({_signed(new_s - old_s)})"
    )


def _signed(seconds: float) -> str:
    """Return a difference of times with its sign."""
    return f"{'-' if seconds < 0 else '+'}{brief(abs(seconds), 's')}"
