"""``python -m lockctl``: the same as the ``lockctl`` command."""

import sys

from lockctl.cli.main import main

sys.exit(main())
