"""The local user at the other end of a loopback connection, by the kernel's socket table (Linux)."""

import os
import socket
import struct
from contextlib import suppress

_DIAGNOSTICS, _BY_FAMILY, _REQUEST = 4, 20, 1
"""Netlink: protocol of socket diagnostics, type of its messages, flag of a request."""
_TCP, _ANY = 6, 0xFFFFFFFF
_UID = struct.Struct("=II")
"""Owner and inode, the last two numbers of an answer's head of 72 bytes, after 16 bytes of netlink's own."""
_UID_AT = 16 + 72 - _UID.size
Place = tuple[str, int]


def peer_uid(peer: Place, here: Place) -> int | None:
    """Return the user whose process holds the other end of a TCP connection within this host; none where unknown.

    A socket that its process has let go of has no owner any more, and is unknown.

    Args:
        peer: address and port of the other end.
        here: those of the own end.

    Source: Linux, sock_diag(7), inet_diag_req_v2 and inet_diag_msg.
    """
    try:
        family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
        ends = b"".join(socket.inet_pton(family, place[0]).ljust(16, b"\0") for place in (peer, here))
        question = struct.pack("=BBBBI", family, _TCP, 0, 0, _ANY) + struct.pack("!HH", peer[1], here[1]) + ends
        question += struct.pack("=III", 0, _ANY, _ANY)  # any interface, no cookie
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _DIAGNOSTICS) as kernel:
            kernel.settimeout(1.0)
            kernel.sendto(struct.pack("=IHHII", 16 + len(question), _BY_FAMILY, _REQUEST, 0, 0) + question, (0, 0))
            answer = kernel.recv(4096)
    except (OSError, AttributeError):  # no such table: another system, or a kernel without it
        return None
    if len(answer) < _UID_AT + _UID.size or struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
        return None
    uid, inode = _UID.unpack_from(answer, _UID_AT)
    return uid if inode else None


def foreign_peer() -> int | None:
    """Return another local user who is connected to this process over loopback; none where there is none."""
    import psutil

    for link in psutil.Process().net_connections("tcp"):
        if link.status == psutil.CONN_ESTABLISHED and link.raddr:
            uid = peer_uid((link.raddr.ip, link.raddr.port), (link.laddr.ip, link.laddr.port))
            if uid not in (None, os.geteuid()):
                return uid
    return None


def knows_users() -> bool:
    """Say whether this system tells who holds the other end of a connection."""
    with suppress(OSError), socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        client.connect(listening.getsockname())
        return peer_uid(client.getsockname(), listening.getsockname()) is not None
    return False
