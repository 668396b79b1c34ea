"""Child process that measures one case, or serves the rounds of a comparison: JSON requests in, JSON answers out."""

import json
import sys

from nearpeak.base.isolation.process_limits import limit
from nearpeak.errors import NearpeakError
from nearpeak.measurement.isolated_measurement import answer_to
from nearpeak.measurement.timing.turn_server import say, serve_rounds


def main() -> None:
    """Read the request, take the measurement or serve rounds, and answer."""
    request = json.loads(sys.stdin.readline())
    if "preload" in request:
        serve_rounds(request["preload"])
        return
    limit(request["memory_bytes"])
    try:
        answer = answer_to(request, "fresh")
    except NearpeakError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    say(answer)


if __name__ == "__main__":
    main()
