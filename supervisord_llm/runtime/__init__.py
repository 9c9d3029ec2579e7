"""The thin trio shell: performs the core's effects on real processes, pipes and timers.

Nothing here decides. Each slot's task owns its worker and everything about it; requests are handed
to it by plain calls that never block, so that what a slot has begun does not depend on the task
that asked for it.
"""
