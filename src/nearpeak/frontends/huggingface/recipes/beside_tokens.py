"""Input recipe for per-token extras: glyphs, pronunciation, markup paths, entities and protein sequences."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_ENTITIES, _MENTION, _PROTEIN = 2, 30, 64


def like_tokens(ask: Ask) -> Any:
    """Return (batch, tokens): one number for each token."""
    return ask.filled(*ask.given("input_ids").shape)


def markup(ask: Ask) -> Any:
    """Return (batch, tokens, depth): the elements that a token stands in, or their numbers."""
    return ask.filled(*ask.given("input_ids").shape, int(ask.setting("max_depth")))


def entity_ids(ask: Ask) -> Any:
    """Return (batch, entities)."""
    return ask.filled(ask.batch, _ENTITIES)


def entity_positions(ask: Ask) -> Any:
    """Return (batch, entities, length of a mention): the tokens that mention each entity."""
    return ask.filled(ask.batch, _ENTITIES, _MENTION)


def protein(ask: Ask) -> Any:
    """Return (batch, residues)."""
    return ask.filled(ask.batch, _PROTEIN, value=5)


RECIPE = Recipe(gives={
    "input_shape_ids": like_tokens, "input_pronunciation_ids": like_tokens, "xpath_tags_seq": markup,
    "xpath_subs_seq": markup, "entity_ids": entity_ids, "entity_position_ids": entity_positions,
    "protein_input_ids": protein, "protein_attention_mask": lambda ask: ask.filled(ask.batch, _PROTEIN),
})  # fmt: skip
