"""Importer of result files that `nearpeak measure --out` writes, and of measurements of the current process."""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from nearpeak.base.canonical_json import canonical_json
from nearpeak.base.input_files import json_value
from nearpeak.core.history.stored_run import CPU_TIME, TIME, Device, Metric, Revision, RunRecord, SampleSet, Testbed
from nearpeak.core.runs.measurement import Environment, Measurement
from nearpeak.errors import SpecError
from nearpeak.exchange.measurement_lines import measurement_record, parse_results
from nearpeak.ops import label_of
from nearpeak.store.importer import FileContext, Importer

_VERSION = 1
_RECORDS = ("ledger", "validation", "phases_s", "algorithm", "telemetry")
"""Fields that are stored as written."""
_CHANNELS = {"host_s": "host_samples_s", "warmup_s": "warmup_s", "clock_probe_s": "clock_probes_s"}


def _recognises(data: bytes) -> bool:
    try:
        first = json_value(data.partition(b"\n")[0])
    except ValueError:
        return False
    return isinstance(first, dict) and first.get("kind") in ("environment", "measurement") and "schema" in first


def _read(data: bytes, context: FileContext) -> tuple[RunRecord, ...]:
    """Return one run for each environment of the file: device and software of a run are the same throughout."""
    text = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace")
    return runs_of_measurements(parse_results(text, context.name)[1].values(), context)


def runs_of_measurements(all_measurements: Iterable[Measurement], context: FileContext) -> tuple[RunRecord, ...]:
    """Return measurements as runs, one for each environment."""
    by_environment: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in all_measurements:
        by_environment[measurement.environment.digest if measurement.environment else ""].append(measurement)
    return tuple(_run(measurements, context) for measurements in by_environment.values())


def runs_of_now(
    measurements: Sequence[Measurement], revision: Revision | None = None, branch: str = "main"
) -> tuple[RunRecord, ...]:
    """Return measurements of this process as runs that began now."""
    now_ns = time.time_ns()
    digest = hashlib.sha256(repr((now_ns, measurements)).encode()).hexdigest()
    return runs_at(measurements, now_ns, digest, revision=revision, branch=branch)


def runs_at(
    measurements: Sequence[Measurement], began_ns: int, digest: str, *, revision: Revision | None, branch: str
) -> tuple[RunRecord, ...]:
    """Return measurements of `nearpeak measure` as runs; `digest` is what tells them from others."""
    context = FileContext(
        name="nearpeak measure", digest=digest, revision=revision, branch=branch,
        device=Device(name=measurements[0].target), trigger="manual", started_ns=began_ns,
    )  # fmt: skip
    return runs_of_measurements(measurements, context)


def _run(measurements: list[Measurement], context: FileContext) -> RunRecord:
    environment = measurements[0].environment
    selector = environment.digest if environment else ""
    packages: dict[str, str] = {}
    if environment is not None:
        named = {name: getattr(environment, name) for name in ("driver", "runtime", "system", "python")}
        packages = {**dict(environment.packages), **{name: version for name, version in named.items() if version}}
    stack = tuple(sorted({**dict(context.stack), **packages}.items()))
    return RunRecord(
        device=_device(environment, context), samples=tuple(_sets(measurements)),
        source=context.source("nearpeak_results", _VERSION, selector=selector),
        revision=context.revision, branch=context.branch, stack=stack, track=context.track,
        started_ns=context.written_ns if context.started_ns is None else context.started_ns, trigger=context.trigger,
    )  # fmt: skip


def _sets(measurements: list[Measurement]) -> Iterator[SampleSet]:
    """Yield the times of each measurement, and its CPU times as a metric of their own."""
    launches: dict[tuple[str, str, str], int] = defaultdict(int)
    for measurement in measurements:
        testbed = _testbed(measurement)
        key = (measurement.case.digest, testbed.name, json.dumps(dict(testbed.policy), sort_keys=True))
        launch, launches[key] = launches[key], launches[key] + 1
        yield _set(measurement, testbed, launch, TIME, measurement.samples_s)
        if measurement.cpu_samples_s:
            yield _set(measurement, testbed, launch, CPU_TIME, measurement.cpu_samples_s)


def _set(
    measurement: Measurement, testbed: Testbed, launch: int, metric: Metric, samples_s: tuple[float, ...]
) -> SampleSet:
    case, written = measurement.case, measurement_record(measurement, "") if metric is TIME else {}
    channels = {
        name: values for name, field in _CHANNELS.items() if metric is TIME and (values := getattr(measurement, field))
    }
    return SampleSet(
        case=case.digest, label=label_of(case), workload=case.op, metric=metric, testbed=testbed,
        values=samples_s, launch=launch, outcome=measurement.outcome.value, note=measurement.note, channels=channels,
        records={name: canonical_json(written[name]) for name in _RECORDS if written.get(name)},
        parameters={name: value for name, value in case.record().items() if isinstance(value, (str, int, float))},
    )  # fmt: skip


def _testbed(measurement: Measurement) -> Testbed:
    """Return runner and method; the resolution of the timer and calls per sample may differ from run to run."""
    method = measurement.method
    if method is None:
        return Testbed(name=measurement.runner)
    names = ("timer", "mode", "cache", "flush", "process", "thread_count", "clock_policy")
    return Testbed(name=measurement.runner, policy={name: getattr(method, name) for name in names})


def _device(environment: Environment | None, context: FileContext) -> Device:
    if environment is None:
        if context.device is None:
            raise SpecError(f"{context.name}: does not say on which device it was measured; name it by --device")
        return context.device
    return Device(
        name=environment.device, uuid=environment.device_uuid, host=context.host, settings=environment.settings
    )


IMPORTER = Importer(
    name="nearpeak_results", title="nearpeak measure --out", version=_VERSION, recognises=_recognises, read=_read
)
