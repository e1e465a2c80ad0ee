"""The subcommands of `signalbox`, one module for each, and what they print with."""
