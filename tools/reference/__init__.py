"""Writes ``docs/reference.md`` from the code: keys, commands, routes, events, words.

Each module makes one section out of the values that the program itself uses, so the reference
cannot say anything else; the meanings are the docstrings. The alternative, a documentation
generator for Python, was not taken: it describes modules and classes, and what a user needs
described is a file format, an HTTP interface and a log.
"""
