"""Input recipe for multiple-choice questions in one prompt."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe


def marks(ask: Ask) -> Any:
    """Return (1, questions): where in the prompt each question ends."""
    return ask.whole([[8, 16]])


def num_options(ask: Ask) -> Any:
    """Return (1, questions): how many options each has."""
    return ask.whole([[2, 2]])


def question_type_ids(ask: Ask) -> Any:
    """Return (1, questions): the type of each."""
    return ask.whole([[0, 0]])


RECIPE = Recipe(gives={"marks": marks, "num_options": num_options, "question_type_ids": question_type_ids})
