"""What the daemon costs, each figure against a floor measured in the same run.

An absolute figure says as much about the machine, and what else runs on it, as about the program.
So every measurement has a counterpart that does the least that could be done with the same workers
on the same machine within the same minutes, and the ratio of the two is what is judged. Floor and
daemon take turns, so that a change of the machine's load falls on both.
"""
