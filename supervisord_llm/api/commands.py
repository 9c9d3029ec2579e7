"""Commands over the control API leave a trace: who asked for what, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from supervisord_llm.api.errors import ClientGone, http_error
from supervisord_llm.api.front import Front
from supervisord_llm.errors import ClientError, Refused
from supervisord_llm.events import ControlOperation
from supervisord_llm.host.peers import Peer


class Command:
    """One command while it is carried out: what the event will say of it."""

    def __init__(self) -> None:
        self.result = "done"
        self.detail: str | None = None


@contextmanager
def command(front: Front, request: Request, verb: str, target: str) -> Iterator[Command]:
    """Publish one ``control.operation`` when the block ends, refusals included."""
    asked = Command()
    try:
        yield asked
    except (ClientError, Refused) as error:
        asked.result = http_error(error).code
        request.state.told = True
        raise
    except ClientGone:
        asked.result = "client_gone"
        raise
    except Exception:
        asked.result = "internal"
        raise
    finally:
        peer: Peer = request.state.peer
        front.publish(
            ControlOperation(
                verb=verb,
                target=target[:200],
                outcome=asked.result,
                detail=asked.detail,
                uid=peer.uid,
                gid=peer.gid,
                pid=peer.pid,
            )
        )
