"""What will run on each node: the agent and the CNI plugin. Empty so far; the lab prepares its nodes itself."""
