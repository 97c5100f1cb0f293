"""A job that writes down every signal it gets: ``recorder.py FILE``. It ends only by SIGKILL."""

import os
import signal
import sys

descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
wakes, wake = os.pipe()  # a signal that comes just before a wait ends it, too
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, lambda got, _: os.write(descriptor, b"%d\n" % got) and None)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
os.write(descriptor, b"ready\n")
while True:
    os.read(wakes, 1)
