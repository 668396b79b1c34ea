"""Text of figures in all reports: numbers with units, escaped names, limiters, steps and policies."""

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from nearpeak.core.answers.analysis import Analysis, CaseRow, CaseTime, TargetAnalysis
from nearpeak.core.answers.bound import Interval, Policy
from nearpeak.core.answers.items import Step, kv_of, sequence_of
from nearpeak.core.runs.below_bound_finding import BelowBound
from nearpeak.core.runs.estimate import Estimate
from nearpeak.errors import ImplausibleError
from nearpeak.units import counted, show

STEPS: Mapping[str, str] = {
    "forward": "inference step",
    "decode": "decode step",
    "train": "training step",
    "sweep": "list of cases",
}
"""Step in words."""
STORED_FORMATS: Mapping[str, str] = {"weights": "weights", "kv_cache": "cache"}
"""Words for formats that a step's origin names beside its main one."""

LIMITERS: Mapping[str, str] = {
    "dram": "memory bandwidth",
    "l2": "L2 cache bandwidth",
    "matrix": "matrix units",
    "link": "links to other devices",
    "host": "link to the host",
    "capacity": "memory bandwidth, storage on chip too small",
    "ingress": "L2 cache bandwidth, storage of multiprocessors too small",
    "barrier": "memory bandwidth, groups read twice",
    "depth": "dependent steps",
    "vector": "vector units",
    "special": "special functions",
    "latency": "dependent steps at usual latency",
}
"""Limiting term in words."""

_DTYPE_POLICIES: Mapping[str, str] = {
    "strict": "Products may run on any unit at least as accurate as the declared format.",
    "tf32": "Products of fp32 may also be rounded to TF32, as frameworks allow.",
    "hard": "Products may run on any unit of the device, whatever its accuracy.",
}

MOST_UNMEASURED = 5
"""Cases without a measured time that are named."""
_KEPT = "\u00a0"  # a space at which no line is broken
_UNIT = re.compile(r"(?<=[0-9]) (?=(?:%|[nµmkMGTP]?(?:s|J|W|B|B/s|FLOP|FLOP/s|Hz))(?![\w/]))")
# Escape sequences of terminals: CSI, OSC up to its terminator, and two-character ones.
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Controls, and the characters that reverse or hide what stands beside them.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def clean(text: str) -> str:
    r"""Return `text` on one line, without control characters, terminal escapes or direction overrides.

    >>> clean("\x1b[31mred\x1b[0m\n")
    'red '
    """
    if text.isprintable():  # nearly every text: nothing in it is a control or hides what stands beside it
        return text
    plain = re.sub(r"[\t\r\n]+", " ", _ESCAPE.sub("", text))
    return _UNSAFE.sub("", plain)


def hung(lines: Iterable[str], width: int = 80) -> Iterator[str]:
    """Yield `lines` wrapped at words to `width` characters; continuation lines are indented by two more.

    A number stays on one line with its unit.

    >>> list(hung(["  to be or not to be"], width=12))
    ['  to be or', '    not to', '    be']
    >>> list(hung(["products 53 %", "between 1 us and 1.5 µs"], width=12))
    ['products', '  53 %', 'between 1 us', '  and 1.5 µs']
    >>> list(hung(["about 99.85 µs"], width=11))
    ['about', '  99.85 µs']
    """
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        broken = textwrap.wrap(
            _UNIT.sub(_KEPT, line), width, subsequent_indent=f"{indent}  ", break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        yield from (piece.replace(_KEPT, " ") for piece in broken or [""])


def shortened(text: str, width: int) -> str:
    """Return `text` cleaned and cut to `width` characters, the cut shown.

    >>> shortened("gemm m=4096", 6)
    'gemm …'
    """
    text = clean(text)
    return text if len(text) <= width else text[: width - 1] + "…"


def told_apart(texts: Sequence[str], width: int) -> list[str]:
    """Return `texts` cleaned and cut to `width` characters: words go first that all texts of one first word share.

    Where that is not enough, they are cut at their end; those that look alike then, in their middle.

    >>> told_apart(["gemm m=16 n=4096 k=4096", "gemm m=16 n=4096 k=512", "softmax rows=64"], 13)
    ['gemm … k=4096', 'gemm … k=512', 'softmax …']
    >>> told_apart(["vectorized_kernel_of_add_on_float", "vectorized_kernel_of_mul_on_float"], 16)
    ['vect…of_add_on_…', 'vect…of_mul_on_…']
    """
    whole = [clean(text) for text in texts]
    kinds: dict[str, list[list[str]]] = {}
    for text in dict.fromkeys(whole):
        kinds.setdefault(text.partition(" ")[0], []).append(text.split(" "))
    shorts = [_without_shared(text, kinds[text.partition(" ")[0]], width) for text in whole]
    for cut in (_cut_inside, _cut_around):
        alike: dict[str, set[str]] = {}
        for text, short in zip(whole, shorts, strict=True):
            alike.setdefault(short, set()).add(text)
        shorts = [
            short if len(alike[short]) == 1 else cut(text, alike[short], width)
            for text, short in zip(whole, shorts, strict=True)
        ]
    return shorts


def _without_shared(text: str, others: Sequence[Sequence[str]], width: int) -> str:
    """Return a text without words that all others have, the last ones first, until it fits; else cut between words."""
    words = text.split(" ")
    for place in range(len(words) - 1, 0, -1):
        if len(" ".join(words)) <= width:
            break
        if all(words[place] in other for other in others):
            words[place : place + 1 + (words[place + 1 : place + 2] == ["…"])] = ["…"]
    short = " ".join(words)
    if len(short) <= width:
        return short
    head = text[:width].rpartition(" ")[0]
    return f"{head}{' ' if len(head) < width - 1 else ''}…" if 2 * len(head) > width else shortened(text, width)


def _cut_inside(text: str, _others: Collection[str], width: int) -> str:
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _cut_around(text: str, others: Collection[str], width: int) -> str:
    """Return the head of a text and the part where others begin to differ from it."""
    differs = (place for place, marks in enumerate(zip(*others, strict=False)) if len(set(marks)) > 1)
    place = next(differs, min(map(len, others)))
    head = max(1, width // 4)
    room = max(1, width - head - 2)
    start = max(head, min(place - room // 3, len(text) - room - 1))
    return f"{text[:head]}…{text[start : start + room]}{'…' if start + room < len(text) else ''}"


def shortened_path(path: str, width: int) -> str:
    """Return a module path cleaned and cut to its last `width` characters, where modules differ.

    >>> shortened_path("model.layers.*.mlp.gate_proj", 12)
    '…p.gate_proj'
    """
    path = clean(path)
    return path if len(path) <= width else "…" + path[len(path) - width + 1 :]


def limiter(name: str) -> str:
    """Return the limiting term in words."""
    return LIMITERS.get(name, clean(name))


def step(analysis: Analysis) -> str:
    """Return the step in words."""
    return STEPS.get(analysis.step, clean(analysis.step))


def subject(analysis: Analysis) -> str:
    """Return the question in words: step, batch, sequence, cached positions and main format, where there are such."""
    return question(analysis, analysis.batch_count, analysis.dtype)


def question(step: Step, batch_count: int | None, dtype: str) -> str:
    """Return what was asked about a step: what it is, batch, sequence, cached positions and format, as far as known.

    >>> from nearpeak.core.work.workload import Workload
    >>> question(Workload(name="m", step="decode", calls=()), 8, "bf16")
    'decode step, batch 8, bf16'
    """
    extents = {"batch": batch_count, "sequence": sequence_of(step), "kv": kv_of(step)}
    named = [f"{name} {count(extent)}" for name, extent in extents.items() if extent is not None]
    known = [] if step.step == "sweep" else named
    formats = [clean(dtype)] if dtype else []
    formats += [f"{name} {clean(step.origin[key])}" for key, name in STORED_FORMATS.items()
                if step.origin.get(key, dtype) != dtype]  # fmt: skip
    return ", ".join([STEPS.get(step.step, clean(step.step)), *known, *formats])


def fit(analysis: Analysis, target: TargetAnalysis) -> tuple[str, str]:
    """Return the verdict on memory and the largest batch; dashes for a list of cases, which holds no step in memory."""
    largest = target.fit.largest_batch_count
    if analysis.memory is None:
        return ("–", "–")
    return (fits(target.fit.fits), "–" if largest is None else count(largest))


def least(analysis: Analysis, value: float, unit: str) -> str:
    """Return a total with its unit, marked ≥ where the bound does not cover every call."""
    return ("" if analysis.complete else "≥ ") + show(value, unit)


def percent(ratio: float) -> str:
    """Return a ratio in percent.

    >>> percent(0.2346), percent(0.00012)
    ('23.5 %', '< 0.1 %')
    """
    if 0 < ratio < 0.0005:
        return "< 0.1 %"
    return f"{round(ratio * 100, 1) or 0.0:.1f} %"


def known_to(estimate: Estimate) -> str:
    """Return how well a median is known; no figure where the samples are too few for how they scatter.

    >>> from nearpeak.core.runs.estimate import estimate_of
    >>> known_to(estimate_of([1.0, 1.01, 0.99])), known_to(estimate_of([1.0, 1.1, 60.0]))
    ('± 1.0%', '± unknown, too few samples')
    """
    return f"± {estimate.half_width_ratio:.1%}" if estimate.is_known else "± unknown, too few samples"


def figure(value: float) -> str:
    """Return a number of any size with three or four digits and no prefix.

    >>> figure(1247.3), figure(0.16667)
    ('1,247', '0.1667')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


def share(part: float, whole: float) -> str:
    """Return a part of a whole in percent; of nothing, every part is nothing."""
    return percent(part / whole if whole else 0.0)


def times(ratio: float) -> str:
    """Return a ratio as a factor.

    >>> times(2.138), times(4434.2)
    ('2.14×', '4,434×')
    """
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"


def count(value: int) -> str:
    """Return a count with thousands separated.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{value:,}"


def coverage(analysis: Analysis) -> str:
    """Return how many calls the bound covers, in words."""
    return f"bound covers {count(analysis.covered_count)} of {count(analysis.call_count)} calls"


def dimensions(analysis: Analysis) -> str:
    """Return the source of the workload's dimensions, if the capture recorded it."""
    return clean(analysis.origin.get("dimensions", analysis.origin.get("source", "")))


def policy(value: Policy) -> tuple[str, ...]:
    """Return what the bounds let a program do, in sentences."""
    inputs = (
        "Inputs start in device memory."
        if value.cold_inputs
        else "As much of the inputs as the last shared cache holds is not charged."
    )
    outputs = (
        "As much of the outputs as the last shared cache holds is not charged."
        if value.output_credit
        else "All outputs are charged to device memory."
    )
    fast = (
        []
        if value.algorithm == "classical"
        else ["Products may be formed by any algorithm, Winograd's or Strassen's too."]
    )
    return (_DTYPE_POLICIES.get(value.dtype, clean(value.dtype)), *fast, inputs, outputs)


def products_counted(value: Policy) -> str:
    """Return which products the work counts; empty where it counts all that the definition names.

    >>> products_counted(Policy())
    ''
    """
    if value.algorithm == "classical":
        return ""
    return "of the products, the work counts those that no algorithm does without (A19); usual code forms far more"


def simplified(target: TargetAnalysis) -> str:
    """Return by what the step was simplified and what it would take as written; empty where nothing was gained."""
    if target.as_written_s is None:
        return ""
    named: dict[str, tuple[int, int]] = {}
    for rewrite in target.rewrites:
        before, after = named.get(rewrite.text, (0, 0))
        named[rewrite.text] = (before + rewrite.before_flop, after + rewrite.after_flop)
    texts = [
        f"{clean(text)} ({show(before, 'FLOP')} → {show(after, 'FLOP')})" if before else clean(text)
        for text, (before, after) in named.items()
    ]
    return f"simplified: {show(target.bound_s, 's')}, {show(target.as_written_s, 's')} as written; {'; '.join(texts)}"


def interval(value: Interval) -> str:
    """Return what values that are not given could make of a bound.

    >>> interval(Interval(low_s=1e-6, high_s=2e-6, axes=("found",)))
    'up to 2 µs if the values are at their worst (A9: found is not given)'
    >>> interval(Interval(low_s=1e-6, high_s=1.00001e-6, axes=("found",)))
    'the same to four digits if the values are at their worst (A9: found is not given)'
    """
    names = " and ".join(value.axes)
    verb = "is" if len(value.axes) == 1 else "are"
    if show(value.high_s, "s") == show(value.low_s, "s"):
        return f"the same to four digits if the values are at their worst (A9: {names} {verb} not given)"
    return f"up to {show(value.high_s, 's')} if the values are at their worst (A9: {names} {verb} not given)"


def below_bound(case: BelowBound) -> str:
    """Return a finding with its evidence in one line."""
    terms = ", ".join(f"{name} {show(time_s, 's')}" for name, time_s in case.terms_s.items())
    times = f"{show(case.measured_s, 's')}, shortest of {len(case.samples_s)}, under {show(case.bound_s, 's')}"
    return f"BELOW_BOUND {clean(case.label)}: {times} by {case.limiter}; {terms}; cause {case.cause}"


def unmeasured(analysis: Analysis, target: TargetAnalysis) -> Iterator[str]:
    """Yield how many cases gave no time, then each of the first with the reason; nothing where all gave one."""
    lacking = [(row.label, time.unmeasured) for row, time in zip(analysis.rows, target.times, strict=True)
               if time.unmeasured]  # fmt: skip
    if not lacking:
        return
    yield f"{len(lacking)} of {counted(len(target.times), 'case')} without a measured time:"
    for label, why in lacking[:MOST_UNMEASURED]:
        yield f"{clean(label)}: {shortened(why, 200)}"
    if len(lacking) > MOST_UNMEASURED:
        yield f"and {len(lacking) - MOST_UNMEASURED} more"


def capacity(size_bytes: int) -> str:
    """Return the memory of a device as its maker states it: in GiB where that is a round number, else in GB.

    >>> capacity(141 * 2**30), capacity(80_000_000_000)
    ('141 GiB', '80 GB')
    """
    gibibytes = size_bytes / 2**30
    return f"{gibibytes:,.0f} GiB" if gibibytes == round(gibibytes) else show(size_bytes, "B")


def fits(value: bool | None) -> str:
    """Return the verdict on memory in words."""
    return {True: "fits", False: "does not fit", None: "unknown"}[value]


def flop_of(row: CaseRow) -> int:
    """Return the FLOP of a case in the roofline: those of matrix units, or all if it uses none."""
    return row.matrix_flop or row.total_flop


def attained(time: CaseTime) -> float | None:
    """Return the attained ratio, bound over measured; none when not measured.

    Raises:
        ImplausibleError: the measurement is below its bound; such a ratio is never shown and never cut to 100 %.
    """
    if is_implausible(time):
        raise ImplausibleError(f"measured {time.measured_s} s, below its bound of {time.bound_s} s by {time.limiter}")
    return time.bound_s / time.measured_s if time.measured_s else None


def is_implausible(time: CaseTime) -> bool:
    """Say whether a measurement is below its bound, which says that a rule, a figure or a timer is wrong."""
    return time.measured_s is not None and time.measured_s < time.bound_s
