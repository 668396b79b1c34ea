"""`python -m nearpeak` is the command line."""

from nearpeak.cli import main

main()
