"""What the indexes of packages say about an image before it is built: versions, dependencies and sizes."""
