"""What an operator types: ``supervisord-llm`` (``daemon``), and ``llmctl`` (``ctl``, the rest)."""
