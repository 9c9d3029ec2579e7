"""What a listener's keys can get wrong together: who could reach it, and with what."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from supervisord_llm.config.addresses import Address, TcpAddress, UnixAddress, parse_address
from supervisord_llm.config.problems import Finding
from supervisord_llm.config.schema import ListenConfig
from supervisord_llm.config.units import show

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def listen_findings(listeners: Sequence[ListenConfig]) -> Iterator[Finding]:
    """Yield what is wrong with each listener, and between them."""
    seen: dict[Address, int] = {}
    names: dict[str, int] = {}
    for index, listen in enumerate(listeners):
        path = f"listen[{index}]"
        if listen.name and (named := names.setdefault(listen.name, index)) != index:
            text = f"cannot be {show(listen.name)}: listen[{named}] is; give each its own"
            yield f"{path}.name", (f"listen[{named}].name",), text
        yield from _general_findings(path, listen)
        try:
            address = parse_address(listen.address)
        except ValueError as error:
            yield f"{path}.address", (), str(error)
            continue
        match address:
            case UnixAddress():
                yield from _unix_findings(path, listen)
            case TcpAddress():
                yield from _tcp_findings(path, listen, address)
                if address.port == 0:
                    continue  # each time another one
        first = seen.setdefault(address, index)
        if first != index:
            where = show(listen.address)
            text = f"cannot listen on {where}: listen[{first}] does; give each its own"
            yield f"{path}.address", (f"listen[{first}].address",), text


def _general_findings(path: str, listen: ListenConfig) -> Iterator[Finding]:
    if len(set(listen.serve)) < len(listen.serve):
        yield f"{path}.serve", (), "cannot serve a group twice; name each once"
    if listen.api_keys and not os.path.isabs(listen.api_keys):  # noqa: PTH117 - any text
        shown = show(listen.api_keys)
        yield f"{path}.api_keys", (), f"cannot use {shown}: relative; write an absolute path"
    if listen.api_keys and "inference" not in listen.serve:
        text = 'cannot be used: only "inference" asks for keys; serve it, or remove api_keys'
        yield f"{path}.api_keys", (f"{path}.serve",), text
    for index, name in enumerate(listen.allowed_hosts):
        if not _HOST_NAME.fullmatch(name):
            text = f"cannot use {show(name)}; write a name without a port, such as my-machine.lan"
            yield f"{path}.allowed_hosts[{index}]", (), text
    if listen.allowed_hosts and not listen.allow_without_key:
        text = "cannot be used without allow_without_key = true, for which it is; remove it"
        yield f"{path}.allowed_hosts", (f"{path}.allow_without_key",), text


def _unix_findings(path: str, listen: ListenConfig) -> Iterator[Finding]:
    if listen.allow_without_key:
        text = (
            "cannot be used for a Unix socket, which needs no key but its file's permissions; "
            "remove it"
        )
        yield f"{path}.allow_without_key", (f"{path}.address",), text


def _tcp_findings(path: str, listen: ListenConfig, address: TcpAddress) -> Iterator[Finding]:
    where = f"{path}.address"
    default = ListenConfig()
    for key in ("mode", "owner", "group"):
        if getattr(listen, key) != getattr(default, key):
            text = "cannot be used for a TCP address, which has no file; remove it"
            yield f"{path}.{key}", (where,), text
    if "control" in listen.serve:
        text = (
            'cannot have "control" on a TCP address, for it lets a client do anything; write '
            '["inference", "probe"], and give "control" a Unix socket in a [[listen]] of its own'
        )
        yield f"{path}.serve", (where,), text
    yield from _key_findings(path, listen, address)


def _key_findings(path: str, listen: ListenConfig, address: TcpAddress) -> Iterator[Finding]:
    key, where = f"{path}.allow_without_key", f"{path}.address"
    if listen.allow_without_key and listen.api_keys:
        text = "cannot be true together with api_keys; remove one of them"
        yield key, (f"{path}.api_keys",), text
    elif listen.allow_without_key and not address.loopback:
        text = (
            f"cannot be true for {address}, which other machines can reach; write "
            "api_keys = FILE, or listen on 127.0.0.1"
        )
        yield key, (where,), text
    elif "inference" in listen.serve and not (listen.allow_without_key or listen.api_keys):
        text = (
            'cannot be left out for "inference" on a TCP address; write the path of a file from '
            "`supervisord-llm new-key NAME --file FILE`"
        )
        if address.loopback:
            text += ", or allow_without_key = true to let in every user of this machine"
        yield f"{path}.api_keys", (where, f"{path}.serve", key), text
