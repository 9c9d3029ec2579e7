"""The HTTP front: control over Unix sockets, inference and probes over TCP as well.

A connection walks through these files: ``listeners`` binds the socket, ``server`` accepts and finds
``room``, ``stream`` guards the bytes, ``connection`` speaks HTTP/1.1 through Hypercorn, ``app``
finds the handler in ``routes``, past the ``gate`` where keys are asked for, and turns every
exception into a reply from ``errors``. Handlers live in one file per noun, take a ``Front`` and a
request, and return an ASGI application as their reply.
"""
