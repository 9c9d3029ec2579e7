"""An async client for the control API, over the daemon's Unix socket.

::

    async with Client() as client:
        request = GenerateRequest(pool="smollm", prompt="Once upon a time")
        async with client.generate(request) as stream:
            print(stream.accepted.id)
            async for line in stream:
                match line:
                    case Token():
                        print(line.text)

What goes in and out are the Structs of `supervisord_llm.schema`. It needs trio, and stands alone:
nothing of the daemon is imported.
"""

from supervisord_llm.client.connection import Client
from supervisord_llm.client.errors import (
    ApiError,
    ControlError,
    DaemonUnreachable,
    NotPermitted,
    UnreadableReply,
)
from supervisord_llm.client.streams import EventStream, GenerateStream, LogStream

__all__ = [
    "ApiError",
    "Client",
    "ControlError",
    "DaemonUnreachable",
    "EventStream",
    "GenerateStream",
    "LogStream",
    "NotPermitted",
    "UnreadableReply",
]
