"""Images on their way into a prompt: cut into the tiles that a vision tower takes, and given places for their rows."""
