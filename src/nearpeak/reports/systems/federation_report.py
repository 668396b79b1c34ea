"""Report of a planned federation: round times, stragglers, policies side by side, groups, and changes of the fleet."""

import json
from collections.abc import Iterator

from nearpeak.core.federated.federation_answer import PlannedFederation, PolicyOutcome
from nearpeak.reports.brief_text import brief, ends, whole_percent
from nearpeak.reports.document import Block, Cell, Details, Document, Table, Text, columns

_CAUSES = {"compute": "a slower board", "link": "slower links", "data": "more samples"}
_SHOWN_CHANGES = 3


def to_json(planned: PlannedFederation) -> str:
    """Return the plan as one JSON line."""
    return json.dumps(planned.record(), allow_nan=False)


def document_of(planned: PlannedFederation) -> Document:
    """Return the plan as a document."""
    blocks: list[Block] = [*_policies(planned), *_groups(planned), *_changes(planned)]
    blocks.append(Details("Assumptions, sources and interval (--why)", tuple(_why(planned))))
    return Document(
        title=f"{planned.model} ({brief(planned.model_bytes, 'B')}), {planned.fleet}: {planned.round_count:,} rounds "
        f"of {planned.asked_count:,} in {planned.client_count:,} clients",
        lead=_headline(planned), blocks=blocks, kicker="Federated plan",
    )  # fmt: skip


def _headline(planned: PlannedFederation) -> str:
    """Return the answer in one or two sentences."""
    first = planned.outcomes[0]
    joules = "" if first.round_j is None else f", {brief(first.round_j, 'J')}"
    words = [
        f"{brief(first.round_mean_s, 's')} per round ({ends(first.low_s, first.high_s, first.round_mean_s, 's')})"
        f"{joules} and {brief(first.round_bytes, 'B')} with {first.policy}, {first.server}"
    ]
    if first.stragglers:
        worst = first.stragglers[0]
        words.append(f"{worst.group} ends {whole_percent(worst.share_ratio)} of the rounds by {_CAUSES[worst.cause]}")
    if planned.cheapest:
        change = next(row for row in planned.changes if row.words == planned.cheapest)
        gain = 1 - change.round_mean_s / first.round_mean_s
        words.append(f"cheapest change: {change.words} (−{whole_percent(gain)})")
    return "; ".join(words) + "."


def _policies(planned: PlannedFederation) -> Iterator[Block]:
    """Yield the policies side by side."""
    rows = []
    for outcome in planned.outcomes:
        mean, low, high = outcome.paired_ratio
        paired = Cell(value=mean, text=f"{mean:.3g}", hint=f"{low:.3g} to {high:.3g} over {len(planned.seeds)} seeds")
        rows.append((
            outcome.policy, outcome.round_mean_s, outcome.quantiles_s[2], outcome.round_j,
            Cell(value=outcome.updates_count, text=f"{outcome.updates_count:.3g}"),
            Cell(value=outcome.jain_ratio, text=f"{outcome.jain_ratio:.2f}"), paired, *_learned(outcome),
        ))  # fmt: skip
    heads = [
        "policy",
        "#round_mean_s|round",
        "#p99_s|p99",
        "#round_j|energy",
        "#updates",
        "#Jain",
        "#time_ratio|÷ first",
    ]
    if any(outcome.curve for outcome in planned.outcomes):
        heads += ["#accuracy", "#to goal", "#in"]
    width = len(heads)
    yield Table(columns=columns(*heads), rows=[row[:width] for row in rows], name="policies", caption="Policies")
    for outcome in planned.outcomes:
        lost = [f"{outcome.late_count:,} updates after the deadline"] if outcome.late_count else []
        lost += [f"{outcome.lost_count:,} clients left before they were done"] if outcome.lost_count else []
        lost += [f"mean staleness {outcome.staleness_count:.3g}"] if outcome.staleness_count else []
        if outcome.estimate_ratio:
            lost.append(f"loss estimates of per-client models take {whole_percent(outcome.estimate_ratio)} of the time")
        if lost:
            yield Text(f"{outcome.policy}: {'; '.join(lost)}.")


def _learned(outcome: PolicyOutcome) -> tuple[str, str, str]:
    curve = outcome.curve
    if curve is None:
        return "–", "–", "–"
    final = f"{100 * curve.accuracy_ratio[-1]:.1f} %"
    if curve.goal_round_count is None or curve.goal_s is None:
        return final, "not reached", "not reached"
    return final, f"{curve.goal_round_count}", brief(curve.goal_s, "s")


def _groups(planned: PlannedFederation) -> Iterator[Block]:
    """Yield what a client of each group takes alone, and its part in the rounds."""
    first = planned.outcomes[0]
    rows = [
        (group.name, Cell(value=group.client_count, text=f"{group.client_count:,}"), group.down_s, group.compute_s,
         group.up_s, Cell(value=group.counted_count, text=f"{group.counted_count:,}"), group.client_j)
        for group in first.groups
    ]  # fmt: skip
    heads = ("<group", "#clients", "#down_s|down", "#compute_s|compute", "#up_s|up", "#counted", "#client_j|J a client")
    caption = f"A client's round, under {first.policy}; counted and J of one run, seed {planned.seeds[0]}"
    yield Table(columns=columns(*heads), rows=rows, name="groups", caption=caption)


def _changes(planned: PlannedFederation) -> Iterator[Block]:
    """Yield the changes that were tried, shortest rounds first."""
    if not planned.changes:
        return
    rows = [(change.words, change.round_mean_s, change.round_j, change.added_j) for change in planned.changes]
    heads = ("~change", "#round_mean_s|round", "#round_j|energy", "#added_j|added")
    yield Table(
        columns=columns(*heads), rows=rows, name="changes", caption="Changes of the fleet",
        brief_count=_SHOWN_CHANGES, rest="more with --json or --html",
    )  # fmt: skip


def _why(planned: PlannedFederation) -> Iterator[Block]:
    """Yield what the plan rests on."""
    for note in planned.notes:
        yield Text(note)
    first = planned.outcomes[0]
    rows = [(share.group, share.cause, share.share_ratio) for share in first.stragglers]
    yield Table(
        columns=columns("group", "cause", "#share_ratio|rounds"), rows=rows, name="stragglers", caption="Stragglers",
        empty="no straggler: the server waits for nobody",
    )  # fmt: skip
    paired = [(outcome.policy, *outcome.paired_ratio, *outcome.quantiles_s) for outcome in planned.outcomes]
    heads = ("policy", "#mean", "#least", "#most", "#p50_s|p50", "#p90_s|p90", "#p99_s|p99", "#longest_s|longest")
    rounded = [
        (name, *(Cell(value=ratio, text=f"{ratio:.3g}") for ratio in row[:3]), *row[3:]) for name, *row in paired
    ]
    yield Table(
        columns=columns(*heads), rows=rounded, name="paired",
        caption="Total time over that of the first policy on the same seeds, and rounds",
    )  # fmt: skip
    sources = [(group.name, group.target, group.source) for group in first.groups]
    yield Table(columns=columns("group", "board", "~source"), rows=sources, name="sources", caption="Time and power")
    yield Text(f"A client makes {planned.epoch_count} passes over its data in a round.")
    yield Text(
        f"The ends of a round's time are those of all boards at the ends of their 90 % intervals at once. Seeds: "
        f"{', '.join(map(str, planned.seeds))}."
    )
