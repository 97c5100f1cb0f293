#!python
"""The command ``lockctl`` as it is installed: the one that pip before 25 writes imports ``re``, a fifth of a start."""

import sys

if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    # the folder of this script: nothing in it is a module of ours, and to list /usr/bin takes a millisecond
    del sys.path[0]

from lockctl.__main__ import main

main()
