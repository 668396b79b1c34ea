"""Mutation scores of test cases, written row by row to a file that a later run resumes."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nearpeak.base.isolation import call_isolated
from nearpeak.case_tensors.size_limits import beyond_rounds
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, SpecError
from nearpeak.measurement.result_file import append_whole, held_file
from nearpeak.ops import case_of, label_of

Row = Mapping[str, Any]


def qualified(cases: Iterable[Case], seed: int, timing: Timing, out: Path) -> Iterator[Row]:
    """Yield a row for each case after writing it to `out`; cases that `out` already holds are skipped.

    Rows are what `nearpeak suite show --scores` reads: digest, killed, survived. A case without a score has its reason.
    """
    with held_file(out) as file:
        known = _known(out)
        for case in cases:
            if case.digest not in known:
                row = _row(case, seed, timing)
                append_whole(file, f"{json.dumps(row)}\n".encode(), out)
                known.add(case.digest)
                yield row


_HEAD = b'{"digest":'


def _known(out: Path) -> set[str]:
    """Return the cases of a file of scores; an incomplete last line is removed, as its case will run again.

    Raises:
        SpecError: it is no file of scores.
    """
    data = out.read_bytes()
    end = data.rfind(b"\n") + 1
    lines = data[:end].decode("utf-8", "replace").split("\n")[:-1]
    digests = [_digest(line) for line in lines]
    if None in digests or not _HEAD.startswith(data[end:][: len(_HEAD)]):
        number = [*digests, None].index(None) + 1
        raise SpecError(f"{out}:{number}: is no line of scores; name another file")
    if end < len(data):
        os.truncate(out, end)
    return set(filter(None, digests))


def _digest(line: str) -> str | None:
    """Return the case digest of a line of scores; none of other lines."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return str(row["digest"]) if isinstance(row, dict) and {"digest", "killed", "survived"} <= row.keys() else None


def _row(case: Case, seed: int, timing: Timing) -> Row:
    head = {"digest": case.digest, "case": label_of(case), "seed": seed}
    none: dict[str, Any] = {"killed": [], "survived": []}
    if reason := beyond_rounds(case):
        return {**head, **none, "reason": reason}
    ending = call_isolated(
        "nearpeak.measurement.case_qualification:score_of",
        {"record": case.record(), "seed": seed}, timeout_s=timing.limit_s,
        memory_bytes=timing.memory_bytes, preload=("torch",),
        variables={"OMP_NUM_THREADS": str(timing.thread_count)},
    )  # fmt: skip
    if ending.verdict == "result":
        return {**head, **ending.value}
    reasons = {"timeout": f"it did not end within {timing.limit_s:g} s (--limit)", "died": "it ended its process",
               "memory": "it took too much memory (--memory)"}  # fmt: skip
    reason = reasons.get(ending.verdict) or ": ".join(map(str, ending.value)).splitlines()[0]
    return {**head, **none, "reason": reason}


def score_of(record: Mapping[str, Any], seed: int) -> Row:
    """Return names of killed, survived and equivalent mutants of a case; executed in a child process.

    A gradient's case is scored by mutants of the gradient, a forward pass by all others.

    Raises:
        MeasureError: the case cannot expose wrong results: they do not vary by more than their bound.
    """
    from nearpeak.validation import forward_case, pytorch, validate
    from nearpeak.validation.mutants import mutation_score

    case = case_of(record)
    gate = validate(case, pytorch(case), seed=seed).results[0]
    if gate.failed:
        raise MeasureError(f"{gate.status}: {gate.reason}")
    score = mutation_score(forward_case(case), seed=seed, of_gradient=case.phase == "backward")
    return {
        "killed": list(score.killed), "survived": list(score.survived),
        "equivalent": dict(score.equivalent),
    }  # fmt: skip
