"""Input recipe for agent trajectories: states, actions, rewards and returns-to-go (Decision Transformer)."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_STEPS = 20


def _numbers(width: str) -> Any:
    return lambda ask: ask.floats(ask.batch, _STEPS, int(ask.setting(width)) if width else 1)


def timesteps(ask: Ask) -> Any:
    """Return (batch, steps): the number of each step."""
    return ask.whole([list(range(_STEPS))] * ask.batch)


RECIPE = Recipe(
    gives={
        "states": _numbers("state_dim"), "actions": _numbers("act_dim"), "rewards": _numbers(""),
        "returns_to_go": _numbers(""), "timesteps": timesteps,
    },
    model_types=frozenset({"decision_transformer"}),
)  # fmt: skip
