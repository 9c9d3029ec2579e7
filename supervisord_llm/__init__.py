"""A supervisor for local LLM workers whose cancellations are bounded in time."""

__version__ = "0.1.0"
