"""Child process that measures one case: a JSON request on standard input, a JSON answer on standard output."""

import json
import os
import sys

from nearpeak.base.isolation.process_limits import limit
from nearpeak.core.runs.measurement import Timing
from nearpeak.errors import NearpeakError
from nearpeak.measurement.isolated_measurement import answer_to
from nearpeak.measurement.timing.interleaved_rounds import say, serve_turns
from nearpeak.ops import case_of


def main() -> None:
    """Read the request, take the measurement or the turns, and answer."""
    request = json.loads(sys.stdin.readline())
    limit(request["memory_bytes"])
    try:
        if request.get("turns"):
            timing = Timing(**request["timing"])
            serve_turns(case_of(request["case"]), request["runner"], timing, holds=request["holds"])
            os._exit(0)  # all is put away, and taking frameworks down would cost each round as much as its turns
        answer = answer_to(request, "fresh")
    except NearpeakError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    say(answer)


if __name__ == "__main__":
    main()
