"""Gains of narrower number formats on a step: of the KV cache, of weights, of products, of the whole step."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from nearpeak.core.answers.analysis import CaseRow, CaseTime, Opportunity
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError
from nearpeak.ops import case as case_of
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.prediction.kernel_model import Setting
from nearpeak.prediction.step_opportunities import Step, opportunity
from nearpeak.units import counted

_WIDE = ("bf16", "fp16")
KV_FORMAT = "fp8_e4m3"
WEIGHT_FORMATS = ("fp8_row", "int8_weight_only")
"""Formats of 8-bit weights that are tried, as servers offer them: W8A8 by rows, and weights alone."""
_WEIGHT_CODE = {
    "fp8_row": "quantize_(model, Float8DynamicActivationFloat8WeightConfig())  # torchao",
    "int8_weight_only": "quantize_(model, Int8WeightOnlyConfig())  # torchao, here --weights int8_weight_only",
}
_ATTENTION_SHARE = 0.05
"""Share of the step's time from which on the cache of keys and values is worth a line."""
Other = Callable[[Case], Case | None]
"""Returns a case in another format; none where it stays as it is."""


def kv_cache(step: Step, target: Target, setting: Setting) -> list[Opportunity]:
    """Return what a cache of keys and values in 8 bits gains a step of decoding."""
    if step.workload.step != "decode":
        return []

    def narrower(case: Case) -> Case | None:
        dtypes = dict(case.dtypes)
        is_wide = case.op == "attention" and dtypes.get("kv_dtype") in _WIDE
        return _reformatted(case, {"kv_dtype": KV_FORMAT}) if is_wide else None

    saved_s, used_s, count = _saved(step, narrower, target, setting)
    if used_s < _ATTENTION_SHARE * step.execution.time_s:
        return []
    evidence = f"attention is {100 * used_s / step.execution.time_s:.0f} % of the step, {counted(count, 'call')}"
    return opportunity(
        step, "kv_cache", "Keep keys and values in 8 bits", step.after_s(saved_s), evidence,
        'LLM(model, kv_cache_dtype="fp8")  # vLLM, here --kv-cache fp8',
    )  # fmt: skip


def weights(step: Step, target: Target, setting: Setting) -> list[Opportunity]:
    """Return what 8-bit weights gain where products wait for them, in the format that gains most."""
    if "weights" in step.workload.origin:  # stored in a narrow format already
        return []
    limited = {row.case for row, time in step.rows if row.matrix_flop and time.limiter == "dram"}

    def narrower(name: str) -> Other:
        return lambda case: _quantised(case, name) if case in limited else None

    options = [(*_saved(step, narrower(name), target, setting), name) for name in WEIGHT_FORMATS]
    saved_s, _, count, name = max(options)
    return opportunity(
        step, "weights", f"Store weights in 8 bits ({name})", step.after_s(saved_s),
        f"{counted(count, 'product')} wait for the memory that holds them", _WEIGHT_CODE[name],
    )  # fmt: skip


def precision(step: Step, target: Target, setting: Setting) -> list[Opportunity]:
    """Return what bf16 gains a step in fp32."""
    if step.analysis.dtype != "fp32":
        return []

    def narrower(case: Case) -> Case | None:
        names = {name: "bf16" for name, dtype in case.dtypes if dtype == "fp32"}
        return _reformatted(case, names) if names else None

    saved_s, _, count = _saved(step, narrower, target, setting)
    return opportunity(
        step, "precision", "Run in bf16 where accuracy allows", step.after_s(saved_s),
        f"{counted(count, 'call')} in fp32", "the same command with --dtype bf16",
    )  # fmt: skip


def products(step: Step, target: Target, setting: Setting) -> list[Opportunity]:
    """Return what fp8 gains where 16-bit products wait for the matrix units."""
    limited = {row.case for row, time in step.rows if row.matrix_flop and time.limiter == "matrix"}
    saved_s, _, count = _saved(
        step, lambda case: _quantised(case, "fp8_row") if case in limited else None, target, setting
    )  # fmt: skip
    return opportunity(
        step, "precision", "Form the products in fp8 where accuracy allows", step.after_s(saved_s),
        f"{counted(count, 'product')} wait for the matrix units", _WEIGHT_CODE["fp8_row"],
    )  # fmt: skip


def narrower_case(case: Case) -> tuple[str, Case] | None:
    """Return a case in the next narrower format with the name of that; none where there is none.

    >>> name, other = narrower_case(case_of("gemm", m=8, n=8, k=8, dtype="bf16"))
    >>> name, other.op
    ('fp8_row', 'scaled_gemm')
    """
    dtypes = dict(case.dtypes)
    wide = {name: "bf16" for name, dtype in case.dtypes if dtype == "fp32"}
    if wide:
        other = _reformatted(case, wide)
        return None if other is None else ("bf16", other)
    if case.op == "attention" and dtypes.get("kv_dtype") in _WIDE:
        other = _reformatted(case, {"kv_dtype": KV_FORMAT})
        return None if other is None else (f"kv_dtype={KV_FORMAT}", other)
    other = _quantised(case, "fp8_row")
    return None if other is None else ("fp8_row", other)


def _saved(step: Step, other: Other, target: Target, setting: Setting) -> tuple[float, float, int]:
    """Return the time that calls save in another format, the time that they take now, and their number.

    A call that would take longer stays as it is; one that no model answers for, too.
    """
    saved_s, used_s, count = 0.0, 0.0, 0
    for row, time, case in _changed(step.rows, other):
        try:
            after_s = predict_case(case, target, setting, None).time_s
        except NearpeakError:
            continue
        now_s = time.prediction.time_s if time.prediction else after_s
        saved_s += max(now_s - after_s, 0.0) * row.call_count
        used_s += now_s * row.call_count
        count += row.call_count
    return saved_s, used_s, count


def _changed(rows: Iterable[tuple[CaseRow, CaseTime]], other: Other) -> Iterable[tuple[CaseRow, CaseTime, Case]]:
    for row, time in rows:
        case = other(row.case) if time.prediction is not None else None
        if case is not None:
            yield row, time, case


def _quantised(case: Case, scheme: str) -> Case | None:
    """Return a product of 16-bit numbers with the operands of a scheme; none of other cases."""
    axes, choices, dtypes = dict(case.axes), dict(case.attributes), dict(case.dtypes)
    if case.phase != "forward" or dtypes.get("dtype") not in _WIDE:
        return None
    if case.op == "grouped_gemm":
        return _reformatted(case, {"dtype": scheme})
    if case.op != "gemm" or axes["batch"] != 1:
        return None
    m, n, k = (axes[name] for name in ("m", "n", "k"))
    return case_of("scaled_gemm", m=m, n=n, k=k, dtype=scheme, bias=choices["bias"])


def _reformatted(case: Case, dtypes: Mapping[str, str]) -> Case | None:
    """Return a case in other formats; none where the operator does not take them."""
    names = {name: dtypes.get(name, dtype) for name, dtype in case.dtypes}
    try:
        other = case_of(case.op, case.phase, **dict(case.axes), **names, **dict(case.attributes))
    except NearpeakError:
        return None
    return replace(other, memory=case.memory)
