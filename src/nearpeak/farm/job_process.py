"""`python -m nearpeak.farm.job_process REQUEST`: runs one job in its own process and writes the result to a file."""

import json
import os
import resource
import sys
from pathlib import Path

from nearpeak.base.isolation.process_limits import limit
from nearpeak.errors import NearpeakError, UnfitError
from nearpeak.farm.kinds import KINDS
from nearpeak.farm.result_handover import write_result

HELD: list[str] = []
"""Lock files that the parent process holds for this one; a process runs one job, so they never change."""
FILES: list[int] = []
"""Those lock files, open: a program that this process starts inherits them, so that the lock ends with the last."""


def main() -> None:
    """Run the job of the request file, and write its result to the same folder."""
    request_file = Path(sys.argv[1])
    request = json.loads(request_file.read_text(encoding="utf-8"))
    limit(request["memory_bytes"])
    cpu_s = int(request["cpu_s"])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    if os.getppid() != request["parent"]:
        return  # it ended before this process could ask to end with it
    HELD.extend(request["held"])
    FILES.extend(request["files"])
    write_result(request_file.with_name("result"), answer(request["kind"], request["payload"]))


def answer(kind: str, payload: dict[str, object]) -> dict[str, object]:
    """Return the result of a job, or the error that it ended with: an unfit device is no fault of the job."""
    try:
        return {"result": dict(KINDS[kind].run(payload))}
    except NearpeakError as error:
        return {"error": type(error).__name__, "message": str(error), "is_unfit": isinstance(error, UnfitError)}
    except MemoryError as error:
        return {"error": "MemoryError", "message": str(error) or "out of memory"}
    except Exception as error:
        return {"error": type(error).__name__, "message": " ".join(str(error).split())[:300]}


if __name__ == "__main__":
    # This file is also imported by its name, by kinds of jobs that ask which locks are held.
    from nearpeak.farm.job_process import main as run

    run()
