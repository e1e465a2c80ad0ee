"""Measures Signalbox beside its peers on one machine, in one run: `make bench`. What each figure means is in README.md.

Every part is a process of its own in namespaces of its own (`enclosure`), so nothing that it started outlives it and
its memory is its own. Ours and a peer's repetitions alternate, because a machine is never equally fast for a minute.
"""
