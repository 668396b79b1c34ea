"""Small logs of MLPerf and of a power analyser."""

import json
from pathlib import Path
from typing import Any

from benchmarks._trace_work import Work


def mlperf_log(path: Path, work: list[Work]) -> None:
    """Write a log of training."""

    def line(key: str, kind: str, time_ms: int, value: Any = None, metadata: Any = None) -> str:
        return "0: :::MLLOG " + json.dumps(
            {
                "namespace": "",
                "time_ms": time_ms,
                "event_type": kind,
                "key": key,
                "value": value,
                "metadata": metadata or {},
            }
        )

    lines = [
        "noise",
        line("submission_benchmark", "POINT_IN_TIME", 1000, "bert"),
        line("init_start", "INTERVAL_START", 1000),
        line("init_stop", "INTERVAL_END", 2500),
        line("run_start", "INTERVAL_START", 2600),
    ]
    lines += [line("eval_accuracy", "POINT_IN_TIME", 2600 + one.correlation, 0.5) for one in work]
    lines.append(line("run_stop", "INTERVAL_END", 9600, None, {"status": "success"}))
    path.write_text("\n".join(lines) + "\n")


def power_log(path: Path, work: list[Work]) -> None:
    """Write the log of a power analyser."""
    path.write_text(
        "".join(
            f"Time,02-23-2022 06:12:{place % 60:02d}.{one.correlation % 1000:03d},Watts,{3 + place / 10:.6f},Volts,121.39,Amps,0.08,PF,0.37,Mark,a\n"
            for place, one in enumerate(work[:50])
        )
    )
