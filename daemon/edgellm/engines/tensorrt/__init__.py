"""TensorRT engines: what a build is asked for, how it is run, what it leaves, and the machine that it fits."""
