"""``python -m supervisord_llm`` is ``supervisord-llm``."""

from __future__ import annotations

import sys

from supervisord_llm.cli.daemon import main

if __name__ == "__main__":
    sys.exit(main())
