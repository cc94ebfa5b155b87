"""The content of an image: an image file, or a definition of the user's, as text from which the runtimes build."""
