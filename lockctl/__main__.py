"""The way in: ``lockctl``, and ``python -m lockctl``, which is the same."""

import sys

from lockctl import loading


def main() -> int:
    """Run the command line of this process; the exit status."""
    loading.install()
    from lockctl.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
