"""Independent references that the runtime is judged against: plain numpy, written from the published architectures."""
