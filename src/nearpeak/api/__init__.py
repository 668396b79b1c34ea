"""The public functions of nearpeak, each a few lines over the rooms below."""
