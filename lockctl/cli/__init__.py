"""The only package that reads argv and the environment, prints, and exits."""
