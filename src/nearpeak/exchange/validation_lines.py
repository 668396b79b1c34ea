"""Validations as plain data and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from nearpeak.core.runs.validation import CheckResult, Validation, WorstElement
from nearpeak.core.work.case import Case


def validation_record(validation: Validation) -> dict[str, Any]:
    """Return the record of an implementation as plain data; its case by digest."""
    return {**asdict(validation), "case": validation.case.digest}


def validation_of(record: Mapping[str, Any], case: Case) -> Validation:
    """Return the validation of `case` that a record holds.

    >>> one = Case(op="fill", phase="forward", axes=(), dtypes=())
    >>> worst = WorstElement(output="y", offset=(1, 2), got="1.0", expected="2.0", bound="0.1", bound_ratio=10.0)
    >>> result = CheckResult(check="V5", status="NUMERIC_FAIL", worst=worst)
    >>> found = Validation(case=one, implementation="f", seed=1, results=(result,), command="")
    >>> validation_of(validation_record(found), one) == found
    True
    """
    return Validation(**{**record, "case": case, "results": tuple(map(_result, record["results"]))})


def _result(record: Mapping[str, Any]) -> CheckResult:
    worst = record["worst"] and WorstElement(**{**record["worst"], "offset": tuple(record["worst"]["offset"])})
    return CheckResult(**{**record, "worst": worst})
