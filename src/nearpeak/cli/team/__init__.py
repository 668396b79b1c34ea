"""Commands for a team: store, history, gates, farm, dashboard."""
