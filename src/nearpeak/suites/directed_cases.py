"""Directed cases: boundaries of each parameter, all pairs of levels, all triples of flags that are legal."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from nearpeak.base.canonical_json import digest
from nearpeak.base.covering_arrays import Combination, Level, Row, combinations_of, covering, legal_row
from nearpeak.core.answers.suite import Source, Suite, SuiteCase, Why
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import OPS, work_of
from nearpeak.suites.parameter_levels import USUAL, Parameter, parameters_of

LARGEST_BYTES, LARGEST_FLOP = 2**26, 2**32
"""Directed cases look for wrong answers, and the reference works in float64: they stay small."""
_PAIR, _FLAGS = 2, 3


def directed_suite(op: str) -> Suite:
    """Return the directed cases of every phase of an operator; obligations without a legal case keep their reasons.

    >>> suite = directed_suite("softmax")
    >>> len({one.case for one in suite.cases}) == len(suite.cases) > 20, min(suite.infeasible.items())
    (True, ('softmax backward x.offset=1', 'softmax: x.offset=1 is not a multiple of the 2 bytes of bf16'))
    """
    rules: dict[Case, dict[str, None]] = {}
    infeasible: dict[str, str] = {}
    for phase in OPS[op].signatures:
        for case, rule in _cases(op, phase, infeasible):
            rules.setdefault(case, {})[rule] = None
    name = f"directed {op}"
    cases = [
        SuiteCase(case=case, why=tuple(Why(kind="directed", source=name, rule=rule) for rule in sorted(own)))
        for case, own in rules.items()
    ]
    cases.sort(key=lambda one: (one.case.phase, one.case.digest))
    made = digest([[one.case.digest, [why.rule for why in one.why]] for one in cases])
    source = Source(name=name, kind="directed", digest=made, origin={"kind": "signature of the operator", "op": op})
    unmet = _without_met(infeasible, rules)
    return Suite(name=name, cases=tuple(cases), sources=(source,), infeasible=unmet)


def obligations_of(op: str, phase: str) -> frozenset[str]:
    """Return the names of all obligations of an operator and phase, legal or not.

    >>> sorted(obligations_of("fill", "forward"))[:3]
    ['fill forward dtype=bf16', 'fill forward dtype=fp16', 'fill forward dtype=fp32']
    """
    parameters = parameters_of(op, phase)
    edges = {_name(op, phase, ((one.name, level),)) for one in parameters for level in one.edges}
    levels = {one.name: one.combined for one in parameters if one.combined}
    pairs = {_name(op, phase, one) for one in combinations_of(levels, min(_PAIR, len(levels)))}
    flags = _flags(parameters)
    triples = {_name(op, phase, one) for one in combinations_of(flags, _FLAGS)} if len(flags) >= _FLAGS else set()
    return frozenset(edges | pairs | triples)


@lru_cache(maxsize=8192)
def met_by(case: Case) -> frozenset[str]:
    """Return every obligation that `case` meets, whatever it was made for.

    >>> from nearpeak.ops import case
    >>> found = met_by(case("softmax", rows=1, columns=127, dtype="bf16"))
    >>> {"softmax forward columns=below_tile", "softmax forward rows=1 columns=odd"} <= found
    True
    """
    parameters = parameters_of(case.op, case.phase)
    found = {one.name: tuple(one.levels_of(case)) for one in parameters}
    names = {
        _name(case.op, case.phase, ((one.name, level),))
        for one in parameters for level in found[one.name] if level in one.edges
    }  # fmt: skip
    combined = (one for one in parameters if one.combined)
    levels = {one.name: tuple(level for level in found[one.name] if level in one.combined) for one in combined}
    names |= {_name(case.op, case.phase, one) for one in combinations_of(levels, min(_PAIR, len(levels)))}
    flags = {name: levels[name] for name in _flags(parameters)}
    if len(flags) >= _FLAGS:
        names |= {_name(case.op, case.phase, one) for one in combinations_of(flags, _FLAGS)}
    return frozenset(names)


def _cases(op: str, phase: str, infeasible: dict[str, str]) -> Iterator[tuple[Case, str]]:
    """Yield cases with the rule behind each; what cannot be met goes into `infeasible`."""
    maker = _Maker(op, phase)
    for one in maker.parameters:
        for level in one.edges:
            row, reason = legal_row(((one.name, level),), maker.levels, maker.refusal)
            if row is None:
                infeasible[_name(op, phase, ((one.name, level),))] = reason
            else:
                yield maker.case(row), f"boundary {one.name}={level}"
    arrays = [("pairs", covering(maker.levels, _PAIR, maker.refusal))]
    flags = _flags(maker.parameters)
    if len(flags) >= _FLAGS:
        arrays.append(("flags", covering(flags, _FLAGS, maker.refusal)))
    for rule, array in arrays:
        infeasible |= {_name(op, phase, one): why for one, why in array.infeasible.items()}
        yield from ((maker.case(dict(row)), rule) for row in array.rows)


class _Maker:
    """Rows of levels into cases of one operator and phase."""

    def __init__(self, op: str, phase: str) -> None:
        self.op, self.phase = op, phase
        self.parameters = parameters_of(op, phase)
        self.levels: dict[str, tuple[str, ...]] = {one.name: one.combined for one in self.parameters if one.combined}

    def case(self, row: Row) -> Case:
        """Return the case; parameters that the row leaves out are at their usual level, or at one needed."""
        values: dict[str, Level] = {}
        for one in self.parameters:
            value = one.value(str(row.get(one.name, one.combined[0] if one.combined else USUAL)))
            if value is not None:
                values[one.name] = value
        for name, listed in OPS[self.op].listed.items():
            needed = listed.get(str(values.get(name)), {})
            values |= {other: value for other, value in needed.items() if row.get(other) in (None, self._usual(other))}
        return OPS[self.op].case(self.phase, **values)

    def _usual(self, name: str) -> str:
        """Return the level of a parameter that is not looked at; empty where nothing combines it."""
        return next(iter(self.levels.get(name, ())), "")

    def refusal(self, row: Row) -> str:
        """Return why there is no such case; empty when there is."""
        try:
            case = self.case(row)
            work = work_of(case)
            OPS[self.op].inputs(**OPS[self.op].forward_arguments(case))  # what cannot be made cannot be run
        except NearpeakError as error:
            return str(error)
        for name, level in row.items():
            if "." in name and str(dict(case.memory).get(name)) != level:
                return f"{self.op}: {name}={level} is {dict(case.memory).get(name, 'dense')} here"
        if work.read_bytes + work.write_bytes > LARGEST_BYTES or sum(work.flop.values()) > LARGEST_FLOP:
            return f"{self.op}: over {LARGEST_BYTES} bytes or {LARGEST_FLOP} FLOP, too large for a directed case"
        return ""


def _flags(parameters: Iterable[Parameter]) -> dict[str, tuple[str, ...]]:
    return {one.name: one.combined for one in parameters if one.is_flag}


def _name(op: str, phase: str, combination: Combination) -> str:
    return " ".join((op, phase, *(f"{name}={level}" for name, level in combination)))


def _without_met(infeasible: Mapping[str, str], cases: Iterable[Case]) -> dict[str, str]:
    """Return what is infeasible: a trial may fail where a case that was made for something else succeeds."""
    met = frozenset[str]().union(*(met_by(case) for case in cases)) if infeasible else frozenset[str]()
    return {name: why for name, why in infeasible.items() if name not in met}
