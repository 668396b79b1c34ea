"""Mixed precision as JSON: all figures and the cast sequence, and what ran beside them."""

import json
from dataclasses import asdict
from typing import Any

from nearpeak.core.answers.mixed_precision import BASELINES, MixedPrecision, PrecisionVerdict
from nearpeak.core.traces.executed_precision import ExecutedPrecision, PrecisionGap
from nearpeak.core.traces.shortfall import Shortfall


def to_json(
    device: MixedPrecision, eager: MixedPrecision, verdict: PrecisionVerdict, gap: PrecisionGap | None = None
) -> str:
    """Return one JSON object: the verdict, the device alone with its casts, the eager figures, and what ran."""
    ratios = {name: device.speed_up_ratio(name) for name in BASELINES}
    slowed = {name: eager.speed_up_ratio(name) for name in BASELINES}
    body = asdict(device) | {"speed_up_ratio": ratios, "cast_ratio": device.cast_ratio, "cast_count": device.cast_count}
    ahead = {name: eager.ahead_ratio(name) for name in BASELINES}
    host = {
        "fixed_s": eager.fixed_s, "speed_up_ratio": slowed, "lowered_s": eager.lowered_s, "ahead_ratio": ahead,
        "ahead_s": dict(eager.ahead_s), "ahead_lowered_s": eager.ahead_lowered_s,
    }  # fmt: skip
    record: dict[str, Any] = {"verdict": asdict(verdict), **body, "eager": host}
    if gap is not None:
        record["executed"] = _gap(gap)
    return json.dumps(record, indent=2)


def executed_to_json(found: ExecutedPrecision) -> str:
    """Return the precision of a trace as one JSON object."""
    return json.dumps({"kind": "nearpeak executed precision", "schema_version": 1, **_executed(found)}, indent=2)


def _executed(found: ExecutedPrecision) -> dict[str, Any]:
    body = asdict(found)
    body["products"] = [one._asdict() for one in found.products]
    body["casts"] = [one._asdict() for one in found.casts]
    names = ("lowered_flop_ratio", "lowered_time_ratio", "matrix_unit_ratio", "cast_count")
    return body | {name: getattr(found, name) for name in names}


def _gap(gap: PrecisionGap) -> dict[str, Any]:
    return {
        **_executed(gap.executed), "against": gap.against, "expected_cast_count": gap.expected_cast_count,
        "matched_ratio": gap.matched_ratio, "doubt": gap.reason, "shortfall": _shortfall(gap.shortfall),
        "baseline_shortfall": None if gap.base is None else _shortfall(gap.base),
        "realised": None if gap.realised is None else asdict(gap.realised),
    }  # fmt: skip


def _shortfall(found: Shortfall) -> dict[str, Any]:
    return {
        "expected_ns": found.expected_ns, "executed_ns": found.executed_ns, "residual_ns": found.residual_ns,
        "covered_ratio": found.covered_ratio, "parts": [part._asdict() for part in found.parts],
    }  # fmt: skip
