"""Tiny model checkpoints for tests, made on the spot: no download, no weights in the tree."""
