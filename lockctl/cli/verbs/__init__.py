"""The verbs of the command line: in each file one command of click, and what it does."""
