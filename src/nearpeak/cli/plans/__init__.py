"""Commands of `nearpeak plan`: `NAME_command.py` holds the function `NAME`, one file per command."""
