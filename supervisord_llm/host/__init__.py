"""Facts about this machine: processes, their memory, what an earlier daemon left behind.

Nothing here decides what to do about a fact; the callers do.
"""
