"""Callbacks of Ansible for tests; Ansible itself finds them by this folder."""
