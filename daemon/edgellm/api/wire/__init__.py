"""Wire models: the bodies that clients send, typed and bounded."""
