"""What happened, for whoever wants to know: the event log, the ring that it can be read back from,
and the counters. Everything in here is a consumer of the one event catalogue.
"""
