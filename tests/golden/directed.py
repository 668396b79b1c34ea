"""The directed cases: tests/golden/operator_cases/<op>.jsonl, one line of arguments for each."""

import json
from pathlib import Path

CASES = Path(__file__).parent / "operator_cases"


def directed(op):
    """Arguments of each directed case of an operator; names that begin with _ are for the tests."""
    return [json.loads(text) for text in (CASES / f"{op}.jsonl").read_text().splitlines()]
