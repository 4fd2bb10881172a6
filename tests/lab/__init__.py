"""A laboratory of devices: small systems with a real systemd each, on the machine that runs the tests."""
