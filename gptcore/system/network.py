"""Addresses and ports to listen on.

>>> in_url("::1"), is_loopback("[::1]")
('[::1]', True)
"""

import errno
import os
import socket
from contextlib import ExitStack
from ipaddress import ip_address

from gptcore.checks import UserError

CONNECTIONS = 4096
LOCALHOST = ("127.0.0.1", "::1", "localhost")
MOST_PORT = 65_535
WAITING = 64  # connections that wait for a server to accept them


def in_url(host: str) -> str:
    """Return the host as written in a URL: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def checked_port(host: str, port: int) -> int:
    """Return the port to listen on; 0 stands for any free one. Raises UserError if it is taken.

    For localhost neither of its addresses may be another program's, which would get what is sent
    there, such as a key of the API.
    """
    if not 0 <= port <= MOST_PORT:
        raise UserError(f"--port {port} is out of range: a port is a number from 1 to {MOST_PORT}")
    for address in [host, *(own for own in localhost() if host in LOCALHOST)]:
        try:
            with listen(address, port) as bound:
                port = bound.getsockname()[1]
        except (OSError, UnicodeError) as error:
            too = "" if address == host else f", which is localhost as {in_url(host)} is"
            why, remedy = str(error), "choose another --host or --port"
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                why = "another program, perhaps another gptcore, has this port"
                remedy = "choose another one, or any free one with --port 0"
            raise UserError(
                f"cannot listen on {in_url(address)}:{port} ({why}){too}: {remedy}"
            ) from None
    return port


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
    """Return sockets that listen on this port of all of localhost's addresses.

    Raises as `listen`.
    """
    with ExitStack() as held:
        found = [held.enter_context(listen(address, port)) for address in localhost()]
        held.pop_all()
    return found


def localhost() -> list[str]:
    """Return the addresses of localhost, of which a browser may use either."""
    return ["127.0.0.1", *["::1"] * has_ipv6()]


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
    """Return the address, for a URL, at which others reach a server that listens on `host`.

    Of all addresses it is the one from which this machine sends to others: a phone cannot look up
    the name of a machine at home.
    """
    if host not in ("", "0.0.0.0", "::"):
        return in_url(host)
    family, other = socket.AF_INET, "192.0.2.1"  # an example's address (RFC 5737)
    if host == "::":
        family, other = socket.AF_INET6, "2001:db8::1"  # RFC 3849
    with socket.socket(family, socket.SOCK_DGRAM) as route:
        try:
            route.connect((other, 9))  # which sends nothing
            return in_url(route.getsockname()[0])
        except OSError:  # this machine is offline
            return socket.gethostname()


def is_loopback(host: str) -> bool:
    """Return whether an address or a name means this machine alone."""
    host = host.strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
