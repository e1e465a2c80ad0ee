"""The pure heart of Signalbox: cluster objects and observations in, units of flows out.

Nothing here does I/O, reads a clock, draws random numbers or logs. Read in this order: `model` (what a
cluster is), `fields` and `tables` (what the pipeline may say), `flow` and `actions` (how it says it),
`rules` (what follows), `features` (what it says), `compiler` (when it says it).
"""
