"""Models of a Hugging Face hub: what an id means, which files of a repository a model needs, and fetching them."""
