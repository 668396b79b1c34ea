"""Options, arguments and output shared by commands."""
