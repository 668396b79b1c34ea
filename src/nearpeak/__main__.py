"""`python -m nearpeak` is the command line."""

import sys


def main() -> None:
    """Run the command line; an interrupt while it is loaded ends it like a later one."""
    try:
        from nearpeak.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("nearpeak: stopped\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
