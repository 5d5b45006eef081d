"""A fuzzer of the command line: odd but readable data, all options of all commands, and an oracle for each run.

``python -m tests.fuzz.run 1000 --seed 7`` runs it; ``frames`` draws tables, ``files`` writes them, ``commands`` draws
lines from the options that the commands have, ``oracle`` judges what a run left, ``run`` runs, shrinks and counts.
"""
