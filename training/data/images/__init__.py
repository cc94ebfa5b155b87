"""Images in files: where they are, how they are read, cropped and batched."""
