"""Directed cases: boundaries of each parameter, all pairs of levels, all triples of flags that are legal."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from nearpeak.base.canonical_json import digest
from nearpeak.base.covering_arrays import Combination, Level, Row, combinations_of, covering, legal_row
from nearpeak.core.answers.suite import Source, Suite, SuiteCase, Why
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import OPS, work_of
from nearpeak.suites.parameter_levels import USUAL, Parameter, parameters_of

LARGEST_BYTES, LARGEST_FLOP = 2**26, 2**32
"""Size limits: directed cases test correctness against a float64 reference, so they stay small."""
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
        SuiteCase(case=case, why=tuple(Why(kind="directed", source=name, rule=rule) for rule in sorted(case_rules)))
        for case, case_rules in rules.items()
    ]
    cases.sort(key=lambda suite_case: (suite_case.case.phase, suite_case.case.digest))
    made = digest([[suite_case.case.digest, [why.rule for why in suite_case.why]] for suite_case in cases])
    source = Source(name=name, kind="directed", digest=made, origin={"kind": "signature of the operator", "op": op})
    # A trial may fail where a case that was made for another obligation succeeds.
    met = frozenset[str]().union(*map(met_by, rules)) if infeasible else frozenset[str]()
    unmet = {obligation: why for obligation, why in infeasible.items() if obligation not in met}
    return Suite(name=name, cases=tuple(cases), sources=(source,), infeasible=unmet)


def obligations_of(op: str, phase: str) -> frozenset[str]:
    """Return the names of all obligations of an operator and phase, legal or not.

    >>> sorted(obligations_of("fill", "forward"))[:3]
    ['fill forward dtype=bf16', 'fill forward dtype=fp16', 'fill forward dtype=fp32']
    """
    parameters = parameters_of(op, phase)
    edges = {_name(op, phase, ((parameter.name, level),)) for parameter in parameters for level in parameter.edges}
    levels = {parameter.name: parameter.combined for parameter in parameters if parameter.combined}
    pairs = {_name(op, phase, pair) for pair in combinations_of(levels, min(_PAIR, len(levels)))}
    flags = _flags(parameters)
    triples = {_name(op, phase, triple) for triple in combinations_of(flags, _FLAGS)} if len(flags) >= _FLAGS else set()
    return frozenset(edges | pairs | triples)


@lru_cache(maxsize=8192)
def met_by(case: Case) -> frozenset[str]:
    """Return every obligation that `case` meets, including those that it was not made for.

    >>> from nearpeak.ops import case
    >>> found = met_by(case("softmax", rows=1, columns=127, dtype="bf16"))
    >>> {"softmax forward columns=below_tile", "softmax forward rows=1 columns=odd"} <= found
    True
    """
    parameters = parameters_of(case.op, case.phase)
    levels_by_name = {parameter.name: tuple(parameter.levels_of(case)) for parameter in parameters}
    names = {
        _name(case.op, case.phase, ((parameter.name, level),))
        for parameter in parameters for level in levels_by_name[parameter.name] if level in parameter.edges
    }  # fmt: skip
    combined = (parameter for parameter in parameters if parameter.combined)
    levels = {
        parameter.name: tuple(level for level in levels_by_name[parameter.name] if level in parameter.combined)
        for parameter in combined
    }
    names |= {_name(case.op, case.phase, pair) for pair in combinations_of(levels, min(_PAIR, len(levels)))}
    flags = {name: levels[name] for name in _flags(parameters)}
    if len(flags) >= _FLAGS:
        names |= {_name(case.op, case.phase, triple) for triple in combinations_of(flags, _FLAGS)}
    return frozenset(names)


def _cases(op: str, phase: str, infeasible: dict[str, str]) -> Iterator[tuple[Case, str]]:
    """Yield cases with the rule behind each; obligations that no case meets go into `infeasible`."""
    maker = _Maker(op, phase)
    for parameter in maker.parameters:
        for level in parameter.edges:
            row, reason = legal_row(((parameter.name, level),), maker.levels, maker.refusal)
            if row is None:
                infeasible[_name(op, phase, ((parameter.name, level),))] = reason
            else:
                yield maker.case(row), f"boundary {parameter.name}={level}"
    arrays = [("pairs", covering(maker.levels, _PAIR, maker.refusal))]
    flags = _flags(maker.parameters)
    if len(flags) >= _FLAGS:
        arrays.append(("flags", covering(flags, _FLAGS, maker.refusal)))
    for rule, array in arrays:
        infeasible |= {_name(op, phase, combination): why for combination, why in array.infeasible.items()}
        yield from ((maker.case(dict(row)), rule) for row in array.rows)


class _Maker:
    """Rows of levels into cases of one operator and phase."""

    def __init__(self, op: str, phase: str) -> None:
        self.op, self.phase = op, phase
        self.parameters = parameters_of(op, phase)
        self.levels: dict[str, tuple[str, ...]] = {
            parameter.name: parameter.combined for parameter in self.parameters if parameter.combined
        }

    def case(self, row: Row) -> Case:
        """Return the case; parameters that the row leaves out are at their usual level, or at one needed."""
        values: dict[str, Level] = {}
        for parameter in self.parameters:
            value = parameter.value(
                str(row.get(parameter.name, parameter.combined[0] if parameter.combined else USUAL))
            )
            if value is not None:
                values[parameter.name] = value
        for name, listed in OPS[self.op].listed.items():
            needed = listed.get(str(values.get(name)), {})
            values |= {other: value for other, value in needed.items() if row.get(other) in (None, self._usual(other))}
        return OPS[self.op].case(self.phase, **values)

    def _usual(self, name: str) -> str:
        """Return the usual level of a parameter; empty for one that is not combined."""
        return next(iter(self.levels.get(name, ())), "")

    def refusal(self, row: Row) -> str:
        """Return why there is no such case; empty when there is."""
        try:
            case = self.case(row)
            work = work_of(case)
            OPS[self.op].inputs(**OPS[self.op].forward_arguments(case))  # inputs that cannot be created cannot be run
        except NearpeakError as error:
            return str(error)
        for name, level in row.items():
            if "." in name and str(dict(case.memory).get(name)) != level:
                return f"{self.op}: {name}={level} is {dict(case.memory).get(name, 'dense')} here"
        if work.read_bytes + work.write_bytes > LARGEST_BYTES or sum(work.flop.values()) > LARGEST_FLOP:
            return f"{self.op}: over {LARGEST_BYTES} bytes or {LARGEST_FLOP} FLOP, too large for a directed case"
        return ""


def _flags(parameters: Iterable[Parameter]) -> dict[str, tuple[str, ...]]:
    return {parameter.name: parameter.combined for parameter in parameters if parameter.is_flag}


def _name(op: str, phase: str, combination: Combination) -> str:
    return " ".join((op, phase, *(f"{name}={level}" for name, level in combination)))
