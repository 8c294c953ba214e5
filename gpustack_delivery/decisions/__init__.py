"""Facts in, verdict out: every rule that can be decided without touching the world.

No I/O, no clock, no threads. Verbs name what is decided; the rooms above gather the facts and act.
"""
