"""A network in the hands of a test: a proxy that holds all bytes back, cuts connections, or refuses new ones."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HOST = "127.0.0.1"
PIECE = 65_536


class Proxy:
    """Hands on what comes to its port, in both directions, while it is let."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._flows = threading.Event()
        self._flows.set()
        self._refuses = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server((HOST, 0), backlog=50)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        """Nothing gets through, and nobody is told: a firewall that drops packets, a switch that hangs."""
        self._flows.clear()

    def let_go(self) -> None:
        """What waited gets through."""
        self._refuses = False
        self._flows.set()

    def cut(self) -> None:
        """Every connection ends now; new ones are taken."""
        pairs, self._pairs = self._pairs, []
        for end in (end for pair in pairs for end in pair):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def refuse(self) -> None:
        """Every connection ends, and so does every new one, until it is let go."""
        self._refuses = True
        self.cut()

    def close(self) -> None:
        """No more of it."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refuses:
                    client.close()
                else:
                    threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._flows.wait()
        try:
            server = socket.create_connection((HOST, self.target), timeout=10)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        self._pairs.append((client, server))
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._hand_on, args=(source, sink), daemon=True).start()

    def _hand_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE):
                self._flows.wait()
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """A proxy before a port of this machine, until the block ends."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
