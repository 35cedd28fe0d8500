"""Addresses and ports to listen on.

>>> in_url("::1"), is_loopback("[::1]")
('[::1]', True)
"""

import os
import socket
from contextlib import ExitStack
from ipaddress import ip_address

from gptcore.checks import UserError

CONNECTIONS = 4096
MOST_PORT = 65_535
WAITING = 64  # connections that wait for a server to accept them


def in_url(host: str) -> str:
    """Return the host as written in a URL: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def check_port(host: str, port: int) -> None:
    """Raise UserError if the page cannot listen on this port; Gradio would show a traceback."""
    if not (0 <= port <= MOST_PORT):
        raise UserError(f"--port {port} is out of range: a port is a number from 1 to {MOST_PORT}")
    try:
        listen(host, port).close()
    except (OSError, UnicodeError) as error:
        raise UserError(
            f"cannot listen on {in_url(host)}:{port} ({error}): choose another --host or --port"
        ) from None


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on this port, and lets callers wait for the server.

    Raises OSError and others. Two sockets may be bound to a port, but only one can listen.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, _, _, (address, _, *rest) = found[0]
    bound = socket.socket(family, kind)
    try:
        if os.name != "nt":  # where it would let two servers have one port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((address, port, *rest))
        bound.listen(WAITING)
    except BaseException:
        bound.close()
        raise
    return bound


def listen_here(port: int) -> list[socket.socket]:
    """Return sockets that listen on this port of 127.0.0.1, and of ::1 where there is IPv6.

    A browser takes either for localhost: who has the other one would have that page's place.
    Raises as `listen`.
    """
    with ExitStack() as held:
        found = [held.enter_context(listen("127.0.0.1", port))]
        if has_ipv6():
            found.append(held.enter_context(listen("::1", port)))
        held.pop_all()
    return found


def has_ipv6() -> bool:
    try:
        listen("::1", 0).close()
    except OSError:
        return False
    return True


def allow_connections() -> None:
    """Let this process have as many open connections as the system allows, up to CONNECTIONS.

    macOS and some shells begin with 256, which one visitor could use up.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = CONNECTIONS if hard == resource.RLIM_INFINITY else min(CONNECTIONS, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def reachable(host: str) -> str:
    """Return the name, for a URL, by which others reach a server that listens on `host`."""
    return socket.gethostname() if host in ("", "0.0.0.0", "::") else in_url(host)


def is_loopback(host: str) -> bool:
    """Return whether an address or a name means this machine alone."""
    host = host.strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
