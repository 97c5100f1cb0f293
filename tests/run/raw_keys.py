"""As an editor does: take the terminal raw, show each key in hex, leave at ``q`` with the terminal as it was."""

import os
import sys
import termios
import tty

terminal = os.open("/dev/tty", os.O_RDWR)
if len(sys.argv) > 1:  # as a pager: something was piped in
    os.write(terminal, b"first line: " + sys.stdin.buffer.readline())
before = termios.tcgetattr(terminal)
tty.setraw(terminal)
os.write(terminal, b"raw now\r\n")
try:
    while (key := os.read(terminal, 1)) != b"q":
        os.write(terminal, b"<%s>" % key.hex().encode())
finally:
    termios.tcsetattr(terminal, termios.TCSADRAIN, before)
