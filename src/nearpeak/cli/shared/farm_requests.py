"""Jobs of `nearpeak farm submit`: cases from words or files, programs, models, or JSON lines of jobs."""

import dataclasses
import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.base.canonical_json import parsed_once
from nearpeak.base.input_files import text_of_file
from nearpeak.cli.shared.case_arguments import cases_of
from nearpeak.cli.shared.farm_payloads import capture_payloads, command_payloads
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.runs.measurement import Timing
    from nearpeak.core.work.case import Case
    from nearpeak.farm.jobs import BatchRequest, JobRequest

SHARED_S, MOST_COUNT = 10.0, 1000
"""Time for which small jobs share a lease as far as is known before, and how many at most."""
LEAST_COUNT, PARTS_COUNT = 50, 16
"""Jobs that are not divided further, and parts into which a sweep is divided where it can be: hosts share them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Options of the command that describe the jobs."""

    kind: str
    """Kind of job, or `jobs` for a file of them."""
    words: tuple[str, ...]
    """Case, file, sources or program."""
    runner: str = "torch_cpu"
    """Runner of the cases."""
    against: str = ""
    """Runner or program that it is compared with; empty for none."""
    round_count: int = 5
    """Rounds of a comparison."""
    launch_count: int = 1
    """Fresh processes that measure each case."""
    targets: tuple[str, ...] = ()
    """Devices that are predicted or simulated."""
    timing: "Timing | None" = None
    """Timing options of the cases."""
    limit_s: float | None = None
    """Wall time of a program."""
    memory_bytes: int | None = None
    """Memory that a program may take; none for any."""
    folder: str = ""
    """Folder in which a program runs; empty for a new, empty folder."""
    revision: Mapping[str, Any] | None = None
    """Commit that is measured."""
    branch: str = "main"
    """Branch whose history the results belong to."""
    batch_count: int = 0
    """Small jobs that one lease serves; 0 for as many as are expected to take some seconds."""
    key: str = ""
    """Tells a campaign from earlier ones."""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Device, model, priority, owner and trigger of each batch."""


def options_of(kind: str, where: tuple[str, str], reason: str, owner: str, trigger: str) -> dict[str, Any]:
    """Return device, model, priority, owner and trigger of the batches.

    Args:
        where: device and model that they must run on; empty for any.
        reason: what they are for; by default `manual` where they need a device, `sweep` where a slot will do.
    """
    from nearpeak.farm.batch_priority import priority_of
    from nearpeak.farm.kinds import KINDS

    alone = kind == "jobs" or KINDS[kind].pool == "device"
    return {
        "device": where[0], "model": where[1], "trigger": trigger, "owner": owner or _user(),
        "priority": priority_of(reason or ("manual" if alone else "sweep")),
    }  # fmt: skip


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "nobody"


def requests_of(order: Submission) -> "list[BatchRequest]":
    """Return the batches that the words ask for.

    Raises:
        SpecError: the kind is not known, or the words are nothing of that kind.
    """
    from nearpeak.farm.kinds import KINDS

    if order.kind == "jobs":
        return _of_file(order)
    if KINDS[order.kind].pool == "device":
        return _alone(order)
    return _chunked(order, _small(order), "slot")


def _cases(order: Submission) -> "list[Case]":
    return cases_of(list(order.words), f"farm submit {order.kind}")


def _small(order: Submission) -> "list[JobRequest]":
    from nearpeak.farm.jobs import JobRequest

    if order.kind == "capture":
        payloads = capture_payloads(order.words)
    elif not order.targets:
        raise SpecError(f"farm submit {order.kind}: --target is missing; e.g. --target h200_sxm")
    else:
        cases, targets = _cases(order), [_whole(item) for item in order.targets]
        payloads = [{"case": item.record(), "target": target} for target in targets for item in cases]
    return [JobRequest(kind=order.kind, payload=payload, key=_key(order)) for payload in payloads]


def _alone(order: Submission) -> "list[BatchRequest]":
    from nearpeak.farm.comparison_rounds import rounds
    from nearpeak.farm.jobs import BatchRequest, JobRequest

    requests: list[BatchRequest] = []
    for arms in _payloads(order):
        if len(arms) == 2:
            requests += rounds(order.kind, (arms[0], arms[1]), order.round_count, key=_key(order), **order.options)
            continue
        for launch in range(order.launch_count):
            job = JobRequest(kind=order.kind, payload=arms[0], key=f"{_key(order)} {launch}")
            requests.append(BatchRequest(jobs=(job,), pool="device", **order.options))
    return requests


def _payloads(order: Submission) -> list[tuple[dict[str, Any], ...]]:
    """Return for each case, or for the program, the payload of each arm."""
    if order.kind == "command":
        limits = {"limit_s": order.limit_s, "memory_bytes": order.memory_bytes, "folder": order.folder or None}
        stated = {name: value for name, value in limits.items() if value is not None}
        return [tuple(command_payloads(order.words, order.against, stated))]
    if order.kind != "measure":
        raise SpecError(f"farm submit {order.kind}: takes no words; write its payloads to a file for farm submit jobs")
    timing = dataclasses.asdict(order.timing) if order.timing else {}
    runners = [order.runner, *([order.against] if order.against else [])]
    common = {"timing": timing, "branch": order.branch}
    common |= {"revision": dict(order.revision)} if order.revision else {}
    return [tuple({"case": case.record(), "runner": each, **common} for each in runners) for case in _cases(order)]


def _key(order: Submission, job_key: str = "") -> str:
    """Return what tells a job from the same one of another campaign, or on another device or model."""
    return " ".join(filter(None, (job_key or order.key, order.options.get("device"), order.options.get("model"))))


def _whole(target: str) -> str:
    """Return a target whose file, if it is one, is found from every folder."""
    name, colon, part = target.partition(":")
    return f"{Path(name).resolve()}{colon}{part}" if name.endswith(".toml") else target


def _chunked(order: Submission, jobs: "Sequence[JobRequest]", pool: str) -> "list[BatchRequest]":
    from nearpeak.farm.jobs import BatchRequest

    if not jobs:
        return []
    whole = max(LEAST_COUNT, -(-len(jobs) // PARTS_COUNT))
    size = order.batch_count or min(whole, *(usual_count(job) for job in jobs))
    options = dict(order.options)
    if pool == "slot":  # cores are alike: a small job is bound to no device
        options |= {"device": "", "model": ""}
    return [
        BatchRequest(jobs=tuple(jobs[first : first + size]), pool=pool, **options)
        for first in range(0, len(jobs), size)
    ]


def usual_count(job: "JobRequest") -> int:
    """Return how many jobs like this one share a lease: enough that its cost is small, few enough that no host idles.

    >>> from nearpeak.farm.jobs import JobRequest
    >>> usual_count(JobRequest(kind="capture", payload={"source": "gpt2"}))
    2
    """
    from nearpeak.farm.kinds import KINDS

    return max(1, min(MOST_COUNT, int(SHARED_S / KINDS[job.kind].cost_s(job.payload))))


def _of_file(order: Submission) -> "list[BatchRequest]":
    """Return jobs of JSON lines: `kind`, `payload`, and `key` where it is to run again."""
    from nearpeak.farm.jobs import JobRequest
    from nearpeak.farm.kinds import KINDS

    if len(order.words) != 1:
        raise SpecError("farm submit jobs: takes one file of JSON lines with kind and payload")
    path = Path(order.words[0])
    if not path.is_file():
        raise SpecError(f"{path}: not found")
    by_pool: dict[str, list[JobRequest]] = {"device": [], "slot": []}
    for number, line in enumerate(text_of_file(path).split("\n"), 1):
        if not line.strip():
            continue
        record = _record(line, f"{path}:{number}")
        job = JobRequest(kind=record["kind"], payload=record["payload"], key=_key(order, str(record.get("key") or "")))
        by_pool[KINDS[job.kind].pool].append(job)
    alone = dataclasses.replace(order, batch_count=1)
    requests = _chunked(alone, by_pool["device"], "device") + _chunked(order, by_pool["slot"], "slot")
    if not requests:
        raise SpecError(f"{path}: holds no jobs")
    return requests


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = parsed_once(line)
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    except (ValueError, RecursionError):
        raise SpecError(f"{where}: is not JSON") from None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise SpecError(f"{where}: is not a job; it needs kind and payload, e.g. "
                        '{"kind":"command","payload":{"words":["./bench"]}}')  # fmt: skip
    if not isinstance(record.get("payload"), dict):
        raise SpecError(f"{where}: 'payload' is not an object")
    unknown = sorted(set(record) - {"kind", "payload", "key"})
    if unknown:
        raise SpecError(f"{where}: {unknown[0]!r} is not known; there are kind, payload, key")
    return record
