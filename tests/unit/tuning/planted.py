"""Planted spaces for tests of tuning: times by a formula with an interaction, failures, and noise per call."""

import gzip
import json
import random

from nearpeak.core.tuning.space import Parameter, TuningSpace

BLOCKS, WARPS, STAGES, ORDERS = (16, 32, 64, 128, 256), (1, 2, 4, 8), (1, 2, 3, 4), ("row", "column")
SPACE = TuningSpace(
    name="planted",
    parameters=(
        Parameter(name="block", settings=BLOCKS),
        Parameter(name="warps", settings=WARPS),
        Parameter(name="stages", settings=STAGES),
        Parameter(name="order", settings=ORDERS),
    ),
)


def time_ms(block, warps, stages, order):
    """Return the true time of a configuration; None where it fails."""
    if block == 256 and stages == 4:
        return None
    place = BLOCKS.index(block)
    return 1 + 0.6 * abs(place - 3) + 0.4 * abs(WARPS.index(warps) - place + 1) + 0.3 * (4 - stages) + (order == "row")


def recorded_file(path, seed=0, noise=0.01):
    """Write the space as T4 JSON."""
    draw, rows = random.Random(seed), []
    for block in BLOCKS:
        for warps in WARPS:
            for stages in STAGES:
                for order in ORDERS:
                    time, settings = (
                        time_ms(block, warps, stages, order),
                        {"block": block, "warps": warps, "stages": stages, "order": order},
                    )
                    runtimes = [] if time is None else [time * (1 + noise * draw.random()) for _ in range(32)]
                    rows.append({
                        "configuration": settings, "invalidity": "correct" if time else "runtime", "correctness": 1,
                        "times": {"runtimes": runtimes},
                        "measurements": [{"name": "time", "value": sum(runtimes) / 32 if time else 0, "unit": ""}],
                    })  # fmt: skip
    data = {"metadata": {"timeunit": "miliseconds"}, "schema_version": "1.0.0", "results": rows}
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return path
