"""`python -m nearpeak.measure.launch`: one case in a process of its own; request and answer are JSON."""

import json
import os
import sys

from nearpeak.core.measurement import Timing
from nearpeak.errors import NearpeakError
from nearpeak.isolation.server import limit
from nearpeak.measure.isolated import answer_to
from nearpeak.measure.turns import say, serve_turns
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
