"""The way in: ``lockctl``, and ``python -m lockctl``, which is the same."""

import _signal
import gc
import os
import sys

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    # first of all: Ctrl-C ends this program as it ends others, and not with a traceback of whatever is being loaded
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from lockctl import loading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
    """Run the command line of this process and end it. Nothing is torn down: all that was written is flushed."""
    if sys.warnoptions:  # such as PYTHONWARNINGS=error, which is meant for programs that are being developed
        import warnings

        warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["run"]:
        gc.disable()  # nothing to collect before the command runs, and looking takes a third of the start
        loading.begin()
    try:
        from lockctl.cli.main import main as run

        status = run()
    except EOFError as failure:
        from lockctl.cli import bug

        status = bug.tell(failure, bug.say_at_once)
    loading.keep()
    os._exit(status)


if __name__ == "__main__":
    main()
