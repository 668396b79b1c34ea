"""Strict reader of gate policies (TOML) that names unknown keys and contradictions."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, text_of_file, toml_table
from nearpeak.core.history.gate import BASELINES, FIELDS, ON_INCONCLUSIVE, GatePolicy, GateRule
from nearpeak.errors import SpecError
from nearpeak.units import parse_share

MOST_WINDOW = 1000
"""Revisions that a rolling baseline may span."""
_TOP = ("name", "tolerance", "inconclusive", "rule")
_KEYS = ("name", "baseline", "tolerance", "at_least", "tag", "window", "select", "except", "inconclusive")
_BELONGS = {"at_least": ("bound",), "tag": ("tag",), "window": ("rolling",)}
_NEEDS = {"bound": "at_least", "tag": "tag", "rolling": "window"}


@border("policy")
def read_policy(path: Path) -> GatePolicy:
    """Return the policy that a TOML file states.

    Raises:
        SpecError: it is not TOML, states what no policy has, or contradicts itself; the message names the rule.
    """
    try:
        text = text_of_file(path)
    except UnicodeDecodeError:
        raise SpecError(f"{path}: is not UTF-8 text; a policy is a TOML file") from None
    return policy_of(text, str(path))


def policy_of(text: str, source: str) -> GatePolicy:
    """Return the policy that `text` states.

    >>> policy_of("rule = [{name = 'roof', baseline = 'bound', at_least = '80%'}]", "gate.toml").rules[0].least_ratio
    0.8
    """
    try:
        raw = toml_table(text)
    except ValueError as error:
        raise SpecError(f"{source}: is not TOML: {error}") from None
    _known(raw, _TOP, source)
    rows = raw.get("rule")
    if not isinstance(rows, list) or not rows:
        raise SpecError(f"{source}: has no rules; write at least one [[rule]] with name and baseline")
    usual = {"tolerance": raw.get("tolerance", "2%"), "inconclusive": raw.get("inconclusive", "stop")}
    rules = tuple(_rule(row, usual, f"{source}: rule {number}") for number, row in enumerate(rows, 1))
    _agree(rules, source)
    name = raw.get("name", Path(source).stem)
    return GatePolicy(name=_text(name, f"{source}: name"), source=source, rules=rules)


def _rule(row: Any, usual: Mapping[str, Any], where: str) -> GateRule:
    if not isinstance(row, dict):
        raise SpecError(f"{where}: is no table; write [[rule]]")
    name = _text(row.get("name", ""), f"{where}: name")
    where = f"{where} {name!r}"
    _known(row, _KEYS, where)
    baseline = _choice(row.get("baseline"), BASELINES, f"{where}: baseline")
    _belong(row, baseline, where)
    least, window = row.get("at_least"), row.get("window", 0)
    if "window" in row and (type(window) is not int or not 1 <= window <= MOST_WINDOW):
        raise SpecError(f"{where}: window {window!r} is no number of revisions from 1 to {MOST_WINDOW}")
    return GateRule(
        name=name, baseline=baseline,
        tolerance_ratio=parse_share(row.get("tolerance", usual["tolerance"]), f"{where}: tolerance"),
        least_ratio=None if least is None else parse_share(least, f"{where}: at_least"),
        tag=_text(row["tag"], f"{where}: tag") if "tag" in row else "",
        window_count=window,
        select=_selectors(row.get("select", {}), f"{where}: select"),
        leave_out=_selectors(row.get("except", {}), f"{where}: except"),
        inconclusive=_choice(row.get("inconclusive", usual["inconclusive"]), ON_INCONCLUSIVE, f"{where}: inconclusive"),
    )  # fmt: skip


def _belong(row: Mapping[str, Any], baseline: str, where: str) -> None:
    """Refuse keys that do not fit the baseline, and missing keys that it needs."""
    for key, baselines in _BELONGS.items():
        if key in row and baseline not in baselines:
            raise SpecError(f"{where}: {key} contradicts baseline {baseline!r}; it belongs to {baselines[0]!r}")
    need = _NEEDS.get(baseline)
    if need is not None and need not in row:
        raise SpecError(f"{where}: baseline {baseline!r} needs {need}")
    if baseline == "bound" and "tolerance" in row:
        raise SpecError(f"{where}: tolerance contradicts at_least, which alone says how near to the bound is enough")


def _agree(rules: tuple[GateRule, ...], source: str) -> None:
    """Refuse rules that contradict each other or select nothing."""
    for rule in rules:
        both = [name for name, pattern in rule.select.items() if rule.leave_out.get(name) in (pattern, "*")]
        if both or "*" in rule.leave_out.values():
            raise SpecError(
                f"{source}: rule {rule.name!r} selects and leaves out the same series; it would judge nothing"
            )
    for rule, other in itertools.combinations(rules, 2):
        if rule.name == other.name:
            raise SpecError(f"{source}: two rules are called {rule.name!r}; give each a name of its own")
        if _question(rule) == _question(other) and _answer(rule) != _answer(other):
            raise SpecError(
                f"{source}: rules {rule.name!r} and {other.name!r} contradict each other: the same series against the"
                f" same baseline with different limits; keep one"
            )


def _question(rule: GateRule) -> tuple[object, ...]:
    sets = (tuple(sorted(rule.select.items())), tuple(sorted(rule.leave_out.items())))
    return (rule.baseline, rule.tag, rule.window_count, *sets)


def _answer(rule: GateRule) -> tuple[object, ...]:
    return (rule.tolerance_ratio, rule.least_ratio, rule.inconclusive)


def _known(raw: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    if unknown := sorted(set(raw) - set(keys)):
        raise SpecError(f"{where}: {unknown[0]!r} is not known; there are {', '.join(keys)}")


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise SpecError(f"{where}: {value!r} is no text; write one line of it")
    return value.strip()


def _choice(value: Any, choices: tuple[str, ...], where: str) -> str:
    if value not in choices:
        raise SpecError(f"{where}: {value!r} is not known; choose {', '.join(choices)}")
    return str(value)


def _selectors(raw: Any, where: str) -> dict[str, str]:
    if not isinstance(raw, dict):
        raise SpecError(f'{where}: is no table; e.g. {{ op = "gemm", target = "h200*" }}')
    _known(raw, FIELDS, where)
    return {name: _text(pattern, f"{where}: {name}") for name, pattern in raw.items()}
