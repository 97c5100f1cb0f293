"""A network of its own with long and uncertain ways: delay, jitter and the loss of whole IP packets.

The kernels of most containers have no ``netem``. So a process in a network namespace of its own reads the packets
that leave a TUN device, and writes most of them back later. An address beyond the device leads to the listeners of
this test, which pass the bytes on to the real servers: TCP retransmits, backs off and reorders as it does in earnest.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import random
import select
import shlex
import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

HERE, BEYOND = "10.77.0.1", "10.77.0.2"  # the device's own address, and the one that leads out of it and back
DEVICE = b"wide"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 1500
START_LIMIT = 10.0  # seconds


class NoNamespaces(Exception):
    """This user may not make a network namespace, or the kernel has no TUN device."""


class WideArea:
    """The network, until it is closed. Programs in it are started with :attr:`enter` before their words."""

    def __init__(self) -> None:
        """Without delay or loss at first. Raises ``NoNamespaces``."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = ["unshare", "--user", "--map-root-user", "--net", "--", sys.executable, "-I", __file__]
        with theirs:
            self._switch = subprocess.Popen(
                [*words, str(theirs.fileno())], pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True
            )
        self._control.settimeout(START_LIMIT)
        if not self._control.recv(1):
            said = self._switch.communicate()[1].strip().rpartition("\n")[2]
            raise NoNamespaces(f"no network of its own: {said}")
        pid = str(self._switch.pid)
        self.enter = ("nsenter", "--target", pid, "--user", "--net", "--preserve-credentials", "--")

    def listener(self) -> socket.socket:
        """A listening socket in the network; to programs in it, it is at ``BEYOND``."""
        self._control.send(b"listen")
        _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        return socket.socket(fileno=descriptors[0])

    def behave(self, trip: float, jitter: float, loss: float) -> None:
        """From now on a round trip takes *trip* seconds, give or take *jitter*, and of packets this part is lost."""
        self._control.send(f"{trip} {jitter} {loss}".encode())
        self._control.recv(1)

    def command(self, words: tuple[str, ...], path: Path) -> str:
        """A program at *path* that is *words* in the network."""
        path.write_text(f'#!/bin/sh\nexec {shlex.join([*self.enter, *words])} "$@"\n')
        path.chmod(0o755)
        return str(path)

    def close(self) -> None:
        """End the network, with whatever is still under way in it."""
        self._control.close()
        self._switch.communicate(timeout=START_LIMIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class Switch:
    """The process in the namespace: what leaves the device comes back with its two addresses changed about.

    The checksums of IP and TCP are sums over both addresses, and so stay right.
    """

    def __init__(self, control: socket.socket) -> None:
        """Make the device. Raises ``OSError``."""
        self._control = control
        self._tun = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        fcntl.ioctl(self._tun, TUNSETIFF, struct.pack("16sH22x", DEVICE, IFF_TUN | IFF_NO_PI))
        device = DEVICE.decode()
        for words in (f"addr add {HERE}/24 dev {device}", f"link set {device} up", "link set lo up"):
            subprocess.run(["ip", *words.split()], check=True)
        self._trip = self._jitter = self._loss = 0.0
        self._chance = random.SystemRandom()
        self._under_way: list[tuple[float, int, bytes]] = []
        self._numbers = itertools.count()

    def run(self) -> None:
        """Until the other end of the control socket is closed."""
        poll = select.poll()
        poll.register(self._tun, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        self._control.send(b"!")
        while True:
            wait = None if not self._under_way else max(0.0, (self._under_way[0][0] - time.monotonic()) * 1000)
            ready = [descriptor for descriptor, _ in poll.poll(wait)]
            if self._control.fileno() in ready and not self._obey():
                return
            if self._tun in ready:
                self._take(os.read(self._tun, MTU))
            while self._under_way and self._under_way[0][0] <= time.monotonic():
                os.write(self._tun, heapq.heappop(self._under_way)[2])

    def _obey(self) -> bool:
        words = self._control.recv(100).split()
        if words == [b"listen"]:
            with socket.create_server((HERE, 0), backlog=128) as listening:
                socket.send_fds(self._control, [b"!"], [listening.fileno()])
        elif words:
            self._trip, self._jitter, self._loss = map(float, words)
            self._control.send(b"!")
        return bool(words)

    def _take(self, packet: bytes) -> None:
        if packet[0] >> 4 != 4 or self._chance.random() < self._loss:
            return
        back = packet[:12] + packet[16:20] + packet[12:16] + packet[20:]
        each_way = (self._trip + self._chance.uniform(-self._jitter, self._jitter)) / 2
        heapq.heappush(self._under_way, (time.monotonic() + max(0.0, each_way), next(self._numbers), back))


if __name__ == "__main__":
    Switch(socket.socket(fileno=int(sys.argv[1]))).run()
