"""Conversations as models want them: pure text work, without I/O, clocks or processes."""
