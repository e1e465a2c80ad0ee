"""The steps of the demo: each shows one thing and fails when it is not seen."""
