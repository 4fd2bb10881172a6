"""Pairing: a client on the network gets a key of its own and the board's authority, with a code read off the board.

What is defended against, and how:

- *Somebody between client and board.* The client first asks the board to prove that it knows the code, over the
  certificate of its authority; only a client that holds the proof, and then reaches a server with a certificate of that
  authority, sends anything. Neither the code nor the key is ever sent: the board gets proofs of the one and the SHA-256
  of the other.
- *Guessing.* A code has 90 random bits. Attempts are limited for each address and in all; wrong proofs close the code.
  Who records a proof of the board can try codes offline, for as long as the code is open and 2^90 of them.
- *A second use.* The first client that proves the code is written down before its key holds. The same client may repeat
  itself, since an answer can be lost; another one is refused.
- *Power cuts.* What is open, used and refused is on disk before it is answered.

Not defended against: somebody who reads the console, or is root on the board. Anybody on the network can use up the
attempts and so prevent a pairing, never make one.
"""
