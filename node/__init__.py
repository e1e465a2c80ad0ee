"""What will run on each node: the agent and the CNI plugin, not there yet; the lab prepares its nodes itself.

`bootstrap` is what the agent gives a bridge before any controller was connected.
"""
