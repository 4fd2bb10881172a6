"""The host tool: what is done to a board from outside the service, with Python's standard library alone.

It runs as `edgellm VERB` from the environment, and as /usr/local/lib/edgellm/host.pyz where the service is a container
or does not start. It imports nothing of edgellm but itself, edgellm.errors and edgellm.durable_file.
"""
