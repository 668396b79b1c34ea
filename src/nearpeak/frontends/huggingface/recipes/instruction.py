"""Input recipe for instructions that are tokenized apart from the prompt: query transformers and task names."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import DEFAULT_TOKENS, Ask, Recipe

_TASK_TOKENS, _CLASSES = 77, 3


def instruction(ask: Ask) -> Any:
    """Return (batch, tokens) of the instruction."""
    return ask.filled(ask.batch, DEFAULT_TOKENS, value=5)


def task(ask: Ask) -> Any:
    """Return (batch, 77): the task in tokens."""
    return ask.filled(ask.batch, _TASK_TOKENS, value=5)


def texts_of_task(ask: Ask) -> Any:
    """Return (batch, texts, 77): what a model that learns from texts is trained with."""
    if ask.step != "train" or not ask.setting("is_training"):
        return None
    return ask.filled(ask.batch, int(ask.setting("num_queries", default=150)), _TASK_TOKENS, value=5)


def classes(ask: Ask) -> Any:
    """Return (classes of all images, 77): the names of the classes to look for."""
    return ask.filled(ask.batch * _CLASSES, _TASK_TOKENS, value=5)


def class_counts(ask: Ask) -> Any:
    """Return (batch,): how many classes belong to each image."""
    return ask.filled(ask.batch, value=_CLASSES)


RECIPE = Recipe(gives={
    "qformer_input_ids": instruction, "task_inputs": task, "text_inputs": texts_of_task, "tasks_input_ids": task,
    "tasks_attention_mask": lambda ask: ask.filled(ask.batch, _TASK_TOKENS),
    "classes_input_ids": classes, "classes_structure": class_counts,
    "classes_attention_mask": lambda ask: ask.filled(ask.batch * _CLASSES, _TASK_TOKENS),
})  # fmt: skip
