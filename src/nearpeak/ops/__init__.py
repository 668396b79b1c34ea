"""The operator catalogue, one file per operator; constructs cases and computes their least work."""

from collections import Counter
from functools import cache, lru_cache

from nearpeak.base.registry import Registry
from nearpeak.core.records.converter import Converter
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.work import Work
from nearpeak.errors import SpecError
from nearpeak.ops.shared.definition.memory_layout import DENSE, LAYOUTS, span_of, strides_of
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Matcher, OnnxSite, Operator, Signature, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

__all__ = [
    "CASE", "DENSE", "LAYOUTS", "OPS", "AtenSite", "Match", "Matcher", "OnnxSite", "Operator", "Signature", "Tolerance",
    "Value", "aten_matchers", "case", "case_of", "label_of", "onnx_matchers", "span_of", "strides_of", "work_of",
]  # fmt: skip


def _called(name: str) -> list[str]:
    """Return the operators that compute what PyTorch or ONNX calls `name`, those with the most such calls first.

    >>> _called("sort"), _called("cholesky"), _called("MatMul"), _called("gem")
    (['topk'], ['linalg'], ['gemm'], [])
    """
    counts: Counter[str] = Counter()
    for operator in OPS:
        names = [overload.split(".")[1] for overload in OPS[operator].aten] + list(OPS[operator].onnx)
        bare = (word.lower().removeprefix("_").removeprefix("linalg_").removesuffix("_ex") for word in names)
        counts[operator] = sum(word == name.lower() for word in bare)
    return [operator for operator, count in counts.most_common() if count]


OPS: Registry[Operator] = Registry.of_modules(
    "OPERATOR", kind="op", package=__name__, file=__file__, group="nearpeak.ops", pattern="*/*.py", synonyms=_called
)
"""All operators by name."""


def case(op: str, phase: str = "forward", **arguments: Value) -> Case:
    """Return the case of operator `op` with the given axes, formats and attributes.

    >>> case("gemm", m=4, n=4, k=8, dtype="bf16").label()
    'gemm m=4 n=4 k=8 batch=1 a_batch=1 b_batch=1 bias_elements=0 layout=nn bf16'
    """
    return OPS[op].case(phase, **arguments)


def case_of(record: object) -> Case:
    """Return the case that plain data state: its operator checks names and values, and writes defaults out.

    >>> case_of(case("fill", elements=3, dtype="fp32").record()) == case("fill", elements=3, dtype="fp32")
    True

    Raises:
        SpecError: the data are no case.
        NotModelledError: the operator has no such phase.
    """
    if not isinstance(record, dict) or not isinstance(record.get("op"), str) or "phase" not in record:
        raise SpecError(f"case {str(record)[:80]}: needs op, phase and the operator's axes")
    arguments = {name: value for name, value in record.items() if name not in ("op", "phase")}
    try:
        return OPS[record["op"]].case(record["phase"], **arguments)
    except TypeError as error:
        raise SpecError(f"case {str(record)[:80]}: {error}") from None


CASE = Converter(Case.record, case_of)
"""Cases within records."""


def work_of(case: Case, algorithm: str = "classical") -> Work:
    """Return the least work of `case`, by classical algorithms or by any bilinear one.

    >>> work_of(case("gemm", m=4, n=4, k=8, dtype="bf16")).flop
    {'matrix.bf16': 256}
    >>> work_of(case("gemm", m=4, n=4, k=8, dtype="bf16"), "any").flop
    {'matrix.bf16': 64}
    """
    formats = {name: dtype_of(value) for name, value in case.dtypes}
    return OPS[case.op].work(case.phase, algorithm, dict(case.axes) | formats | dict(case.attributes))


def label_of(case: Case) -> str:
    """Return the case as one line of text, without arguments at their defaults.

    >>> label_of(case("gemm", m=4, n=4, k=8, dtype="bf16"))
    'gemm m=4 n=4 k=8 bf16'
    >>> label_of(case("gemm", m=4, n=4, k=8, dtype="bf16", **{"a.layout": "transposed", "b.offset": 2}))
    'gemm m=4 n=4 k=8 bf16 a.layout=transposed b.offset=2'
    """
    signature, extents = OPS[case.op].signatures[case.phase], dict(case.axes)
    same, defaults = signature.same, signature.defaults
    axes = [
        f"{name}={extent}" for name, extent in case.axes
        if name not in defaults or extent != (extents[same[name]] if name in same else defaults[name])
    ]  # fmt: skip
    back = "" if case.phase == "forward" else " backward"
    words = [f"{case.op}{back}", *axes, *_chosen_words(case.op, case.phase, case.dtypes, case.attributes)]
    return " ".join([*words, case.lies()] if case.memory else words)


@lru_cache(maxsize=1 << 10)
def _chosen_words(
    op: str, phase: str, dtypes: tuple[tuple[str, str], ...], attributes: tuple[tuple[str, str | bool], ...]
) -> tuple[str, ...]:
    """Return the words of a label that the cases of one kind share: choices and formats that are no defaults."""
    defaults = OPS[op].signatures[phase].defaults
    first = next(iter(dict(dtypes).values()), "")
    formats = [f"{name}={value}" for name, value in dtypes[1:] if value != (defaults.get(name) or first)]
    choices = [f"{name}={value}" for name, value in attributes if value != defaults.get(name)]
    return tuple(word for word in (*choices, first, *formats) if word)


@cache
def aten_matchers() -> dict[str, tuple[str, Matcher]]:
    """Return operator and matcher by ATen overload; an overload claimed twice is refused."""
    return _matchers("aten")


@cache
def onnx_matchers() -> dict[str, tuple[str, Matcher]]:
    """Return operator and matcher by ONNX operator type; a type claimed twice is refused."""
    return _matchers("onnx")


def _matchers(dialect: str) -> dict[str, tuple[str, Matcher]]:
    claims: dict[str, tuple[str, Matcher]] = {}
    for name in OPS:
        for overload, matcher in getattr(OPS[name], dialect).items():
            if overload in claims:
                raise SpecError(f"ops: {overload} is claimed by both {claims[overload][0]} and {name}")
            claims[overload] = (name, matcher)
    return claims
