"""Images: the definition of an image file, the SIF in the cache, and the command that runs a rank in it."""
