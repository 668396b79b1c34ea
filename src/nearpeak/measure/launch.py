"""`python -m nearpeak.measure.launch`: one case in a process of its own; request and answer are JSON."""

import json
import os
import sys

from nearpeak.core.measurement import Timing
from nearpeak.errors import NearpeakError
from nearpeak.exchange.measurement_lines import environment_record, measurement_record
from nearpeak.isolation.server import limit
from nearpeak.measure.isolated import take
from nearpeak.measure.turns import say, serve_turns
from nearpeak.ops import case_of


def main() -> None:
    """Read the request, take the measurement or the turns, and answer."""
    request = json.loads(sys.stdin.readline())
    limit(request["memory_bytes"])
    try:
        case = case_of(request["case"])
        timing = Timing(**request["timing"])
        if request.get("turns"):
            serve_turns(case, request["runner"], timing, holds=request["holds"])
            os._exit(0)  # all is put away, and taking frameworks down would cost each round as much as its turns
        found = take(case, request["runner"], timing, "fresh")
    except NearpeakError as error:
        say({"error": type(error).__name__, "message": str(error)})
    else:
        environment = environment_record(found.environment) if found.environment else None
        say({"measurement": measurement_record(found, ""), "environment": environment})


if __name__ == "__main__":
    main()
