"""Mixed precision as JSON: all figures and the cast sequence."""

import json
from dataclasses import asdict

from nearpeak.core.mixed_precision import BASELINES, MixedPrecision, PrecisionVerdict


def to_json(device: MixedPrecision, eager: MixedPrecision, verdict: PrecisionVerdict) -> str:
    """Return one JSON object: the verdict, the device alone with its casts, and the eager figures."""
    ratios = {name: device.speed_up_ratio(name) for name in BASELINES}
    slowed = {name: eager.speed_up_ratio(name) for name in BASELINES}
    body = asdict(device) | {"speed_up_ratio": ratios, "cast_ratio": device.cast_ratio, "cast_count": device.cast_count}
    host = {"fixed_s": eager.fixed_s, "speed_up_ratio": slowed, "lowered_s": eager.lowered_s}
    return json.dumps({"verdict": asdict(verdict), **body, "eager": host}, indent=2)
