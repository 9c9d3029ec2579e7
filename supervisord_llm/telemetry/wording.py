"""Each event as one sentence, for logs that show people a message and keep the fields apart.

A template has the names of fields in braces; a part in brackets is left out where one of its fields
does not apply. ``{who}`` is the worker with its generation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from supervisord_llm.telemetry.render import printable

SENTENCES: Mapping[str, str] = {
    "daemon.started": "supervisord-llm {version} has started with {config}",
    "daemon.listening": "it listens on {address} and serves {serves}",
    "daemon.ready": "it is ready[: pools {pools}]",
    "daemon.stopping": "it stops because of {reason}[, and waits for nothing{forced}]",
    "daemon.stopped": "it has stopped with exit status {exit_code}",
    "daemon.warning": "{message}; {remedy}",
    "daemon.error": "a bug was contained: {error} in {where} (id {id})",
    "daemon.loop_lag": "the event loop was {seconds} s late",
    "config.reloaded": "the configuration was read again[: {differences}]"
    "[; waits for a restart: {needs_restart}]",
    "config.rejected": "the configuration is not valid and was left as it was: {error}",
    "worker.added": "{worker} is a slot of pool {pool} from now on",
    "worker.removed": "{worker} is no slot any more",
    "worker.spawned": "{who} loads its model (pid {pid})",
    "worker.ready": "{who} is ready after {load_ms} ms",
    "worker.state": "{who} went from {from} to {to}[ ({reason})]",
    "worker.activated": "{who} takes work now",
    "worker.rested": "{who} stands by from now on",
    "worker.draining": "{who} gets no more work: {reason}[, {detail}]",
    "worker.quarantined": "{who} was judged unfit: {reason}[, {detail}]",
    "worker.signalled": "{signal} was sent to {who} ({target})",
    "worker.exited": "{who} ended after {uptime_seconds} s: {exit}",
    "worker.reaped": "{who} is gone: {exit}",
    "worker.unreapable": "{who} does not end although it was killed (pid {pid})",
    "worker.restart_scheduled": "{who} is started in {delay_ms} ms: {reason}, attempt {attempt}",
    "worker.parked": "{who} is parked after {restarts} restarts: {reason}[, {exit}]",
    "worker.resumed": "{who} was brought back by an operator",
    "worker.log": "{who}: {line}",
    "worker.usage": "{who} holds {rss} bytes",
    "request.accepted": "{request} waits in pool {pool}, {queued} before it",
    "request.started": "{request} went to {who} after {queued_ms} ms",
    "request.retried": "{request} lost {who} and waits for another worker: {reason}",
    "request.first_token": "{request} had its first token after {ttft_ms} ms",
    "request.finished": "{request} is over after {total_ms} ms: {outcome}[ by {cancelled_by}]"
    "[, {error}][, {detail}]",
    "request.late_terminal": "{request} had ended already when this came: {kind}",
    "request.rejected": "a request was refused: {code}[, field {field}]",
    "cancel.requested": "{request} is to end, asked by {by}",
    "cancel.delivered": "{who} was told after {elapsed_ms} ms to end {request}",
    "cancel.escalated": "{who} is handled by the next rung after {elapsed_ms} ms: {to}",
    "cancel.settled": "{request} left its worker after {elapsed_ms} ms: {resolution}",
    "http.refused": "{peer} was refused with status {status}: {reason}",
    "control.operation": "{verb} {target}: {result}[, {detail}][, by user id {uid}]",
}
"""Templates by the names of events."""

_PART = re.compile(r"\[([^\]]*)\]|([^\[]+)")
_NAME = re.compile(r"\{(\w+)\}")


def sentence(fields: Mapping[str, object]) -> str:
    """An event in one line without control characters.

    Args:
        fields: its name under ``event``, and those of its fields that apply, as plain values.
    """
    known = {"who": _who(fields), **fields}
    template = SENTENCES.get(str(fields["event"]), "{event}[ {who}]")
    said = []
    for optional, required in _PART.findall(template):
        if required or all(known.get(name) is not None for name in _NAME.findall(optional)):
            said.append(_NAME.sub(lambda match: _word(known.get(match[1])), optional or required))
    return "".join(said)


def _who(fields: Mapping[str, object]) -> str | None:
    worker, generation = fields.get("worker"), fields.get("generation")
    return None if worker is None else f"{worker}/{generation}" if generation else str(worker)


def _word(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, list):
        return ", ".join(_word(each) for each in value)
    return printable(value)
