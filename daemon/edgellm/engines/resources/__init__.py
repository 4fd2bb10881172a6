"""What a build or a load takes of memory and disk, and what this machine has: compared before the first byte."""
