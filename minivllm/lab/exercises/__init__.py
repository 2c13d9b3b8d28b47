"""The checkers of the exercises, one file per chapter: `ch03.py` checks every exercise named `03.…`."""
