"""Sources, translation and guard, without any server."""
