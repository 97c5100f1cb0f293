"""What every refusal has in common: one clear line, the right status, and the command did not run."""

from __future__ import annotations


class Refusal:
    """Runs `lockctl run WORDS -- touch MARKER` and checks how it is refused."""

    def __init__(self, lockctl):
        self.lockctl = lockctl
        self.marker = lockctl.directory / ".ran"

    def command(self, *words):
        return ["run", *words, "--", "touch", str(self.marker)]

    def check(self, done, status):
        """The one line that was said."""
        assert not self.marker.exists(), "the command ran"
        assert "Traceback" not in done.stderr
        assert (done.returncode, done.stdout) == (status, ""), done.stderr
        assert done.stderr.startswith("lockctl: ")
        assert done.stderr.endswith("\n")
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr[:-1].isprintable(), repr(done.stderr)
        return done.stderr

    def __call__(self, status, *words, through=None, **options):
        command = self.command(*words)
        if through is not None:
            return self.check(through(self.lockctl.command, *command, **options), status)
        return self.check(self.lockctl(*command, **options), status)
