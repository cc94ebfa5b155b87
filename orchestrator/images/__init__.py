"""Images: an image file becomes a definition, then a SIF in the cache, and the command that runs a rank in it."""
