"""Who may use the inference routes of a listener, and as whom: judged before a body is read.

Where keys are asked for, the key says who it is. Where they are not, over TCP on the loopback
address, every program of this machine may come, and so would every web page that one of its
browsers shows: by sending a request there, or by giving its own name that address and reading the
answers, too (DNS rebinding). A browser says in ``Origin`` and ``Host`` which page asks, and of
which name, so requests that name anybody else than this machine are refused. There is no CORS.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from starlette.requests import Request

from supervisord_llm.api.errors import Forbidden, Unauthorized
from supervisord_llm.api.keys import KeyRings
from supervisord_llm.config.schema import ListenConfig

_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE)
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]*)?")
_REMEDY = "call it as localhost or 127.0.0.1, or add the name to listen.allowed_hosts"


def admit(request: Request, keys: KeyRings) -> None:
    """Let a request in, and note in ``request.state.client`` whose it is.

    Raises:
        Unauthorized: without a key that is needed.
        Forbidden: if a web page of somebody else's may have sent it.
    """
    listen: ListenConfig = request.state.listen
    if listen.api_keys:
        request.state.client = f"key:{_owner(request, listen, keys)}"
    elif listen.address.startswith("tcp:"):
        _check_names(request, listen)


def _owner(request: Request, listen: ListenConfig, keys: KeyRings) -> str:
    presented = request.headers.getlist("authorization")
    if not presented:
        raise Unauthorized("cannot do that without an API key; send 'Authorization: Bearer KEY'")
    match = _BEARER.fullmatch(presented[0])
    if match is None or len(presented) > 1:
        raise Unauthorized(
            "cannot use the header 'Authorization'; send it once, as 'Authorization: Bearer KEY'"
        )
    owner = keys.owner(listen.api_keys, match[1])
    if owner is None:
        raise Unauthorized(
            "cannot use this API key: it is none of those that the daemon has; ask its operator "
            "for one"
        )
    return owner


def _check_names(request: Request, listen: ListenConfig) -> None:
    host = request.headers.get("host", "")
    # Only HTTP/1.0 comes without, and no browser speaks that.
    if host and not _is_ours(host, listen):
        raise Forbidden(f"cannot serve the host {host[:80]!r} without API keys; {_REMEDY}")
    origin = request.headers.get("origin")
    if origin is None:
        return
    try:
        page = urlsplit(origin)
    except ValueError:
        page = None
    # The "null" of a page in a sandbox has no scheme; an application's own, such as app://, cannot
    # be a page from elsewhere.
    is_web = page is None or page.scheme in {"", "http", "https"}
    if is_web and (page is None or not _is_ours(page.netloc, listen)):
        raise Forbidden(f"cannot serve web pages of {origin[:80]!r} without API keys; {_REMEDY}")


def _is_ours(host: str, listen: ListenConfig) -> bool:
    """Whether a name, with or without a port, can only mean this machine."""
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match[1].strip("[]").removesuffix(".").lower()
    if name == "localhost" or name in {each.lower() for each in listen.allowed_hosts}:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
