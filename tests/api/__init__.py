"""The Kubernetes source against real API servers."""
