"""Messages of errors: one line of a bounded length, whatever they quote."""

import pickle

import pytest

from nearpeak.errors import MOST_CHARACTERS, SpecError, UnknownNameError
from nearpeak.ops import case
from nearpeak.targets import target_of
from nearpeak.units import parse, parse_share

LONG = "9" * 1_000_000


@pytest.mark.parametrize(
    "ask",
    [lambda: case("gemm", m=1, n=1, k=1, dtype=LONG), lambda: case(LONG), lambda: target_of(LONG),
     lambda: parse(LONG, "B"), lambda: parse_share(LONG + "%", "a.toml: tolerance"),
     lambda: case("gemm", dtype="bf16", **{LONG: 1})],
)  # fmt: skip
def test_a_message_that_quotes_a_long_text_is_cut(ask):
    with pytest.raises(SpecError) as caught:
        ask()
    message = str(caught.value)
    assert len(message) <= MOST_CHARACTERS
    assert " characters)" in message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def test_a_message_of_usual_length_is_as_it_was_written():
    text = "a.toml: op 'x' is not known; " * 20
    assert str(UnknownNameError(text)) == text
