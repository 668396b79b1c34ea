"""Input recipe for detected image regions: features and boxes."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_REGIONS = 36


def visual_feats(ask: Ask) -> Any:
    """Return (batch, regions, features)."""
    return ask.floats(ask.batch, _REGIONS, int(ask.setting("visual_feat_dim", "visual_embedding_dim")))


def visual_pos(ask: Ask) -> Any:
    """Return (batch, regions, 4): the box of each region."""
    return ask.floats(ask.batch, _REGIONS, 4)


RECIPE = Recipe(gives={"visual_feats": visual_feats, "visual_pos": visual_pos, "visual_embeds": visual_feats})
