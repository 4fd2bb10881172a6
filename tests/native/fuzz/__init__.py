"""Damaged model files, and the workers that open them so that a crash is seen and not suffered."""
