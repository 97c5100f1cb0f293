"""The way in: ``lockctl``, and ``python -m lockctl``, which is the same."""

import _signal
import sys

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    # first of all: Ctrl-C ends this program as it ends others, and not with a traceback of whatever is being loaded
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from lockctl import loading


def main() -> int:
    """Run the command line of this process; the exit status."""
    loading.install()
    from lockctl.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
