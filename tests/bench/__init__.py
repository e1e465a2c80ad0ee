"""The bench, with a few services."""
