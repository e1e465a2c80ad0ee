"""Real Kubernetes programs for the tests: built once, started when needed."""
