"""Images: from a recipe to a definition, from that to a SIF in the cache, and the command that runs a rank in it."""
