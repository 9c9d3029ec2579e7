"""The HTTP front: control routes and probes over Unix sockets.

A connection walks through these files: ``listeners`` binds the socket, ``server`` accepts and
counts, ``stream`` guards the bytes, ``connection`` speaks HTTP/1.1 through Hypercorn, ``app`` finds
the handler in ``routes`` and turns every exception into a reply from ``errors``. Handlers live in
one file per noun, take a ``Front`` and a request, and return an ASGI application as their reply.
"""
