"""Programs that use client libraries as their users do. Each takes the daemon's URL and fails where it is not served.

They run in a process of their own, in a network namespace with loopback alone: some of these libraries call home.
"""
