"""The verbs of ``lockctl fence``: in each file one command of click, and what it does."""
