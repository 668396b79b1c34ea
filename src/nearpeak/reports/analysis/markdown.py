"""An analysis as compact Markdown, for a pull request or a wiki."""

import re
from collections.abc import Iterable, Sequence

from nearpeak.core.answers.analysis import Analysis, Share, TargetAnalysis
from nearpeak.reports import expected_time_text as expected
from nearpeak.reports import figure_text as words
from nearpeak.reports.unmeasured_cases import lines_of
from nearpeak.units import show

TOP_COUNT = 8
"""Operators, modules and opportunities shown of the first target."""


def render(analysis: Analysis) -> str:
    """Return the report as Markdown."""
    blocks = [*_head(analysis), _targets(analysis), *_marks(analysis)]
    for target in analysis.targets[:1]:
        blocks += [
            f"### On {prose(target.title)}",
            "\n".join(f"- {prose(line)}" for line in expected.lines_of(analysis, target)),
            _parts("operator", target.by_operator),
            _parts("module", target.by_module),
        ]
        blocks += [_opportunities(target)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def name_cell(text: str, width: int = 72) -> str:
    r"""Return a name out of a model as a code span, in which Markdown and HTML mean nothing.

    >>> name_cell("a|b`c`<i>")
    "`a\\|b'c'<i>`"
    """
    safe = words.shortened(text, width).replace("`", "'").replace("\\", "/").replace("|", "\\|").strip()
    return f"`{safe}`" if safe else "–"


def prose(text: str) -> str:
    r"""Return running text with every character that Markdown or HTML could read as markup escaped.

    >>> prose("a*b <i> @team")
    'a\\*b &lt;i&gt; @\u2060team'
    """
    plain = words.clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A word joiner keeps a host from turning @name into a notification.
    return re.sub(r"([\\`*_{}\[\]#|!~])", r"\\\1", plain).replace("@", "@\u2060").replace("://", ":\u2060//")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; columns after the first are aligned right."""
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join([':--', *['--:'] * (len(head) - 1)])}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _head(analysis: Analysis) -> Iterable[str]:
    yield f"## {prose(analysis.name)}: {prose(words.subject(analysis))}"
    if source := words.dimensions(analysis):
        yield f"Dimensions: {prose(source)}."
    flop = f"{show(analysis.total_flop, 'FLOP')} ({show(analysis.matrix_flop, 'FLOP')} for matrix units)"
    size = f"{show(analysis.fused_bytes, 'B')} fused, {show(analysis.unfused_bytes, 'B')} operator by operator"
    yield f"{flop}; {size}; **{words.coverage(analysis)}**."
    if counted := words.products_counted(analysis.policy):
        yield f"{counted[0].upper()}{counted[1:]}."


def _targets(analysis: Analysis) -> str:
    head = (
        "target",
        "bound",
        "one kernel per operator",
        "launch floor",
        "expected",
        "limiter",
        "memory",
        "largest batch",
    )
    return table(head, [_target_cells(analysis, target) for target in analysis.targets])


def _target_cells(analysis: Analysis, target: TargetAnalysis) -> Sequence[str]:
    floor = "–" if target.launch_floor_s is None else words.least(analysis, target.launch_floor_s, "s")
    return (
        prose(target.title),
        f"**{words.least(analysis, target.bound_s, 's')}**",
        words.least(analysis, target.chained_s, "s"),
        floor,
        expected.total(target.prediction),
        words.limiter(target.limiter),
        *words.fit(analysis, target),
    )


def _marks(analysis: Analysis) -> Iterable[str]:
    if analysis.uncovered:
        named = ", ".join(f"{name_cell(name, 48)} ×{calls}" for name, calls in analysis.uncovered.items())
        yield f"Not covered by a rule, so that every total is a lower estimate (≥): {named}."
    for target in analysis.targets:
        if target.unverified:
            yield f"{prose(target.title)}: derived or second-hand figures: {prose(', '.join(target.unverified))}."
        if target.proof is not None and target.proof.interval is not None:
            yield f"{prose(target.title)}: {prose(words.interval(target.proof.interval))}."
        if target.rewrites:
            yield f"{prose(target.title)} {prose(words.simplified(target))}."
        wrong = sum(words.is_implausible(time) for time in target.times)
        if wrong:
            yield f"**{prose(target.title)}: {wrong} measurements below their bound are implausible.**"
        yield from (prose(words.below_bound(one)) for one in target.below_bound)
        first, *others = [*lines_of(analysis, target)] or [""]
        if first:
            yield f"**{prose(target.title)}: {prose(first)}**"
            yield from map(prose, others)


def _parts(kind: str, parts: Sequence[Share]) -> str:
    def cells(part: Share) -> Sequence[str]:
        limiter = max(part.limiter_s, key=lambda name: part.limiter_s[name], default="")
        figures = (
            show(part.time_s, "s"),
            words.percent(part.share_ratio),
            words.limiter(limiter),
            words.count(part.call_count),
        )
        return (name_cell(part.name or "(top level)"), *figures)

    rows = [cells(part) for part in parts[:TOP_COUNT]]
    if rest := parts[TOP_COUNT:]:
        time_s, share = sum(part.time_s for part in rest), sum(part.share_ratio for part in rest)
        rows.append(
            (
                f"{len(rest)} more",
                show(time_s, "s"),
                words.percent(share),
                "",
                words.count(sum(p.call_count for p in rest)),
            )
        )
    return table((kind, "time", "share", "limiter", "calls"), rows) if rows else ""


def _opportunities(target: TargetAnalysis) -> str:
    if not target.opportunities:
        return ""
    lines = [
        f"- {show(one.gain_s, 's')}: {prose(one.title)} ({prose(one.kind)}, {name_cell(one.where, 48)}). "
        + prose(one.evidence)
        for one in target.opportunities[:TOP_COUNT]
    ]
    return "\n".join(["Largest opportunities (at most; gains overlap):", "", *lines])
