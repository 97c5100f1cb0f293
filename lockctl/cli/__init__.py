"""The only room that reads argv and the environment, prints, and exits: one verb, one file."""
