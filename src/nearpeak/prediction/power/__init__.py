"""Power and energy model: unit activity, voltage, board limits."""
