#!python
"""The command ``lockctl`` as it is installed: the one that pip before 25 writes imports ``re``, a fifth of a start."""

import sys
from posix import environ  # built in

if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    # the folder of this script: nothing in it is a module of ours, and to list /usr/bin takes a millisecond
    del sys.path[0]
# An empty or relative entry is the job's folder: whoever writes there would give lockctl its modules. Python keeps no
# compiled scripts, and to compile this takes longer than all the rest: it is text, which hardly any start needs.
WITHOUT_RELATIVE = """
sys.path[:] = [place for place in sys.path if place[:1] == "/"]
from os import environ as variables
from os import path

given = variables["PYTHONPATH"].split(":")
try:
    relative = [path.abspath(entry) for entry in given if entry[:1] != "/"]
except OSError:  # that folder was removed
    relative = []
for place in relative:
    if place in sys.path and place not in given:
        sys.path.remove(place)
        if path.isfile(place + "/os.py") or path.isfile(place + "/lockctl/script.py"):
            sys.path.append(place)  # it may be that of Python or of lockctl itself
"""
if environ.get(b"PYTHONPATH") and not sys.flags.ignore_environment:
    exec(WITHOUT_RELATIVE)  # noqa: S102 - our own

from lockctl.__main__ import main  # noqa: E402 - not before its places are known

main()
