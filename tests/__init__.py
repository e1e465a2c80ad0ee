"""Tests; a package, since some library installs a top-level one of the same name."""
