"""`python -m demo_app`: open the desk on this machine, play a booking against it, keep serving."""

import sys


def main() -> int:
    """What `run` returns; and 0 for Ctrl-C at any moment, the imports included."""
    try:
        from .serving import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        print("\nThe desk is closed.")
        return 0


if __name__ == "__main__":
    sys.exit(main())
