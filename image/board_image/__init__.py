"""What goes onto a board: assembled as one archive over its root file system, and flashed by NVIDIA's own tool."""
