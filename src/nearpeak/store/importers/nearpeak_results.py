"""Importer of result files that `nearpeak measure --out` writes."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator

from nearpeak.base.canonical_json import canonical_json
from nearpeak.core.history.stored_run import CPU_TIME, TIME, Device, Metric, RunRecord, SampleSet, Testbed
from nearpeak.core.runs.measurement import Environment, Measurement
from nearpeak.errors import SpecError
from nearpeak.exchange.measurement_lines import measurement_record, parse_results
from nearpeak.ops import label_of
from nearpeak.store.importer import Given, Importer

_VERSION = 1
_RECORDS = ("ledger", "validation", "phases_s", "algorithm", "telemetry")
"""Fields that are kept as they are written."""
_CHANNELS = {"host_s": "host_samples_s", "warmup_s": "warmup_s", "clock_probe_s": "clock_probes_s"}


def _recognises(data: bytes) -> bool:
    try:
        first = json.loads(data.partition(b"\n")[0])
    except ValueError:
        return False
    return isinstance(first, dict) and first.get("kind") in ("environment", "measurement") and "schema" in first


def _read(data: bytes, given: Given) -> tuple[RunRecord, ...]:
    """Return one run for each environment of the file: device and software of a run are the same throughout."""
    text = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace")
    return runs_of_measurements(parse_results(text, given.name)[1].values(), given)


def runs_of_measurements(found: Iterable[Measurement], given: Given) -> tuple[RunRecord, ...]:
    """Return measurements as runs, one for each environment."""
    by_environment: dict[str, list[Measurement]] = defaultdict(list)
    for one in found:
        by_environment[one.environment.digest if one.environment else ""].append(one)
    return tuple(_run(measurements, given) for measurements in by_environment.values())


def _run(found: list[Measurement], given: Given) -> RunRecord:
    environment = found[0].environment
    selector = environment.digest if environment else ""
    own: dict[str, str] = {}
    if environment is not None:
        named = {name: getattr(environment, name) for name in ("driver", "runtime", "system", "python")}
        own = {**dict(environment.packages), **{name: version for name, version in named.items() if version}}
    stack = tuple(sorted({**dict(given.stack), **own}.items()))
    return RunRecord(
        device=_device(environment, given), samples=tuple(_sets(found)),
        source=given.source("nearpeak_results", _VERSION, selector=selector),
        revision=given.revision, branch=given.branch, stack=stack, track=given.track,
        started_ns=given.written_ns if given.started_ns is None else given.started_ns, trigger=given.trigger,
    )  # fmt: skip


def _sets(found: list[Measurement]) -> Iterator[SampleSet]:
    """Yield the times of each measurement, and its CPU times as a metric of their own."""
    launches: dict[tuple[str, str, str], int] = defaultdict(int)
    for one in found:
        testbed = _testbed(one)
        key = (one.case.digest, testbed.name, json.dumps(dict(testbed.policy), sort_keys=True))
        launch, launches[key] = launches[key], launches[key] + 1
        yield _set(one, testbed, launch, TIME, one.samples_s)
        if one.cpu_samples_s:
            yield _set(one, testbed, launch, CPU_TIME, one.cpu_samples_s)


def _set(one: Measurement, testbed: Testbed, launch: int, metric: Metric, samples_s: tuple[float, ...]) -> SampleSet:
    channels = {name: values for name, field in _CHANNELS.items() if metric is TIME and (values := getattr(one, field))}
    return SampleSet(
        case=one.case.digest, label=label_of(one.case), workload=one.case.op, metric=metric, testbed=testbed,
        values=samples_s, launch=launch, outcome=one.outcome.value, note=one.note, channels=channels,
        records=_records(one) if metric is TIME else {},
        parameters={name: value for name, value in one.case.record().items() if isinstance(value, (str, int, float))},
    )  # fmt: skip


def _records(one: Measurement) -> dict[str, str]:
    """Return what stands beside the times of a measurement, as its file states it."""
    written = measurement_record(one, "")
    return {name: canonical_json(written[name]) for name in _RECORDS if written.get(name)}


def _testbed(one: Measurement) -> Testbed:
    """Return runner and method; the resolution of the timer and calls per sample may differ from run to run."""
    method = one.method
    if method is None:
        return Testbed(name=one.runner)
    names = ("timer", "mode", "cache", "flush", "process", "thread_count", "clock_policy")
    return Testbed(name=one.runner, policy={name: getattr(method, name) for name in names})


def _device(environment: Environment | None, given: Given) -> Device:
    if environment is None:
        if given.device is None:
            raise SpecError(f"{given.name}: does not say on which device it was measured; name it by --device")
        return given.device
    return Device(name=environment.device, uuid=environment.device_uuid, host=given.host, settings=environment.settings)


IMPORTER = Importer(
    name="nearpeak_results", title="nearpeak measure --out", version=_VERSION, recognises=_recognises, read=_read
)
