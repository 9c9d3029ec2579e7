"""What the operator wrote, checked as a whole and turned into values that the daemon can act on.

``schema`` is the theory: frozen Structs with every key, bound and default. ``load`` reads a file
into them and reports every problem at once. ``launch`` works out what is started per slot. ``dump``
shows what is in force, ``diff`` what a file that was read again changes. Nothing here starts, opens
or creates anything.
"""
