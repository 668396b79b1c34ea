"""Jobs of `nearpeak farm submit`: cases from words or files, programs, models, or JSON lines of jobs."""

import dataclasses
import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.base.canonical_json import parsed_once
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
class Asked:
    """The options of the command that say what is to run."""

    kind: str
    """Kind of job, or `jobs` for a file of them."""
    words: tuple[str, ...]
    """Case, file, sources or program."""
    runner: str = "torch_cpu"
    """What runs the cases."""
    against: str = ""
    """Runner or program that it is compared with; empty for none."""
    round_count: int = 5
    """Rounds of a comparison."""
    launch_count: int = 1
    """Fresh processes that measure each case."""
    targets: tuple[str, ...] = ()
    """Devices that are predicted or simulated."""
    timing: "Timing | None" = None
    """How cases are timed."""
    limit_s: float | None = None
    """Wall time of a program."""
    memory_bytes: int | None = None
    """Memory that a program may take; none for any."""
    folder: str = ""
    """Folder in which a program runs; empty for an empty one of its own."""
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


def requests_of(asked: Asked) -> "list[BatchRequest]":
    """Return the batches that the words ask for.

    Raises:
        SpecError: the kind is not known, or the words are nothing of that kind.
    """
    from nearpeak.farm.kinds import KINDS

    if asked.kind == "jobs":
        return _of_file(asked)
    if KINDS[asked.kind].pool == "device":
        return _alone(asked)
    return _chunked(asked, _small(asked), "slot")


def _cases(asked: Asked) -> "list[Case]":
    return cases_of(list(asked.words), f"farm submit {asked.kind}")


def _small(asked: Asked) -> "list[JobRequest]":
    from nearpeak.farm.jobs import JobRequest

    if asked.kind == "capture":
        payloads = capture_payloads(asked.words)
    elif not asked.targets:
        raise SpecError(f"farm submit {asked.kind}: --target is missing; e.g. --target h200_sxm")
    else:
        cases, targets = _cases(asked), [_whole(one) for one in asked.targets]
        payloads = [{"case": one.record(), "target": target} for target in targets for one in cases]
    return [JobRequest(kind=asked.kind, payload=payload, key=_key(asked)) for payload in payloads]


def _alone(asked: Asked) -> "list[BatchRequest]":
    from nearpeak.farm.comparison_rounds import rounds
    from nearpeak.farm.jobs import BatchRequest, JobRequest

    found: list[BatchRequest] = []
    for arms in _payloads(asked):
        if len(arms) == 2:
            found += rounds(asked.kind, (arms[0], arms[1]), asked.round_count, key=_key(asked), **asked.options)
            continue
        for launch in range(asked.launch_count):
            job = JobRequest(kind=asked.kind, payload=arms[0], key=f"{_key(asked)} {launch}")
            found.append(BatchRequest(jobs=(job,), pool="device", **asked.options))
    return found


def _payloads(asked: Asked) -> list[tuple[dict[str, Any], ...]]:
    """Return for each case, or for the program, the payload of each arm."""
    if asked.kind == "command":
        return [tuple(command_payloads(asked.words, asked.against, _beside(asked)))]
    if asked.kind != "measure":
        raise SpecError(f"farm submit {asked.kind}: takes no words; write its payloads to a file for farm submit jobs")
    timing = dataclasses.asdict(asked.timing) if asked.timing else {}
    runners = [asked.runner, *([asked.against] if asked.against else [])]
    common = {"timing": timing, "branch": asked.branch}
    common |= {"revision": dict(asked.revision)} if asked.revision else {}
    return [tuple({"case": one.record(), "runner": each, **common} for each in runners) for one in _cases(asked)]


def _key(asked: Asked, own: str = "") -> str:
    """Return what tells a job from the same one of another campaign, or on another device or model."""
    return " ".join(filter(None, (own or asked.key, asked.options.get("device"), asked.options.get("model"))))


def _beside(asked: Asked) -> dict[str, Any]:
    """Return what is said of a program beside its words."""
    given = {"limit_s": asked.limit_s, "memory_bytes": asked.memory_bytes, "folder": asked.folder or None}
    return {name: value for name, value in given.items() if value is not None}


def _whole(target: str) -> str:
    """Return a target whose file, if it is one, is found from every folder."""
    name, colon, part = target.partition(":")
    return f"{Path(name).resolve()}{colon}{part}" if name.endswith(".toml") else target


def _chunked(asked: Asked, jobs: "Sequence[JobRequest]", pool: str) -> "list[BatchRequest]":
    from nearpeak.farm.jobs import BatchRequest

    if not jobs:
        return []
    whole = max(LEAST_COUNT, -(-len(jobs) // PARTS_COUNT))
    size = asked.batch_count or min(whole, *(usual_count(one) for one in jobs))
    options = dict(asked.options)
    if pool == "slot":  # cores are alike: a small job is bound to no device
        options |= {"device": "", "model": ""}
    return [
        BatchRequest(jobs=tuple(jobs[first : first + size]), pool=pool, **options)
        for first in range(0, len(jobs), size)
    ]


def usual_count(job: "JobRequest") -> int:
    """Return how many jobs like this one share a lease: so many that taking it is little beside, and no host idles.

    >>> from nearpeak.farm.jobs import JobRequest
    >>> usual_count(JobRequest(kind="capture", payload={"source": "gpt2"}))
    2
    """
    from nearpeak.farm.kinds import KINDS

    return max(1, min(MOST_COUNT, int(SHARED_S / KINDS[job.kind].cost_s(job.payload))))


def _of_file(asked: Asked) -> "list[BatchRequest]":
    """Return jobs of JSON lines: `kind`, `payload`, and `key` where it is to run again."""
    from nearpeak.farm.jobs import JobRequest
    from nearpeak.farm.kinds import KINDS

    if len(asked.words) != 1:
        raise SpecError("farm submit jobs: takes one file of JSON lines with kind and payload")
    path = Path(asked.words[0])
    if not path.is_file():
        raise SpecError(f"{path}: not found")
    by_pool: dict[str, list[JobRequest]] = {"device": [], "slot": []}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        record = _record(line, f"{path}:{number}")
        job = JobRequest(kind=record["kind"], payload=record["payload"], key=_key(asked, str(record.get("key") or "")))
        by_pool[KINDS[job.kind].pool].append(job)
    alone = dataclasses.replace(asked, batch_count=1)
    found = _chunked(alone, by_pool["device"], "device") + _chunked(asked, by_pool["slot"], "slot")
    if not found:
        raise SpecError(f"{path}: holds no jobs")
    return found


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = parsed_once(line)
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    except (ValueError, RecursionError):
        raise SpecError(f"{where}: is no JSON") from None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise SpecError(f"{where}: is no job; it needs kind and payload, e.g. "
                        '{"kind":"command","payload":{"words":["./bench"]}}')  # fmt: skip
    if not isinstance(record.get("payload"), dict):
        raise SpecError(f"{where}: 'payload' is no object")
    unknown = sorted(set(record) - {"kind", "payload", "key"})
    if unknown:
        raise SpecError(f"{where}: {unknown[0]!r} is not known; there are kind, payload, key")
    return record
