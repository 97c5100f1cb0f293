#!python
"""The command ``lockctl`` as it is installed: the one that pip before 25 writes imports ``re``, a fifth of a start."""

from lockctl.__main__ import main

main()
