"""Reports of kernel tuning: studies and replays."""
