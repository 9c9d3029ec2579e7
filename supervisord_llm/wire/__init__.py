"""Bytes to messages and back, without I/O: what is said between the daemon and a worker.

A connection is fed bytes and asked for messages; it owns the protocol's state (what was negotiated,
what is outstanding) and knows neither pipes nor clocks. So every boundary between two reads, every
malformed line and every order of replies is tested without a process.
"""
