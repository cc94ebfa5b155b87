"""Images in files: finding, reading, cropping and batching them."""
