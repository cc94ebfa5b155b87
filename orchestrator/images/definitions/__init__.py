"""What an image is made of: an image file, or a definition of the user's, as text that the runtimes build from."""
