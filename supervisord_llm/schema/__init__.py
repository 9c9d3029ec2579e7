"""What the control API says: request, response and record Structs, shared by daemon and client.

Field names are the public interface. Requests forbid unknown fields; responses tolerate them when
decoded, so that an older client can talk to a newer daemon. Times are RFC 3339 in UTC, durations
end in ``_ms`` or ``_seconds``, sizes are bytes.
"""

from supervisord_llm.schema.base import INT32_MAX, INT64_MAX, ErrorBody, ErrorReply, Request
from supervisord_llm.schema.daemon import ConfigChange, Status, StreamGap, StreamOpened, Totals
from supervisord_llm.schema.pools import (
    WORKERS_MAX,
    Health,
    ModelInfo,
    PoolHealth,
    PoolInfo,
    PoolReply,
    Pools,
    PoolSummary,
    ScaleRequest,
)
from supervisord_llm.schema.requests import (
    PRIORITY_MAX,
    PRIORITY_MIN,
    Accepted,
    CancelRecord,
    Failure,
    Finished,
    GenerateRequest,
    Message,
    RequestInfo,
    Requests,
    SessionDeleted,
    SessionRequest,
    SessionReset,
    Started,
    StreamLine,
    Timings,
    Token,
    Usage,
)
from supervisord_llm.schema.workers import LastExit, LogLine, Memory, SlotReply, WorkerInfo, Workers

__all__ = [
    "INT32_MAX",
    "INT64_MAX",
    "PRIORITY_MAX",
    "PRIORITY_MIN",
    "WORKERS_MAX",
    "Accepted",
    "CancelRecord",
    "ConfigChange",
    "ErrorBody",
    "ErrorReply",
    "Failure",
    "Finished",
    "GenerateRequest",
    "Health",
    "LastExit",
    "LogLine",
    "Memory",
    "Message",
    "ModelInfo",
    "PoolHealth",
    "PoolInfo",
    "PoolReply",
    "PoolSummary",
    "Pools",
    "Request",
    "RequestInfo",
    "Requests",
    "ScaleRequest",
    "SessionDeleted",
    "SessionRequest",
    "SessionReset",
    "SlotReply",
    "Started",
    "Status",
    "StreamGap",
    "StreamLine",
    "StreamOpened",
    "Timings",
    "Token",
    "Totals",
    "Usage",
    "WorkerInfo",
    "Workers",
]
