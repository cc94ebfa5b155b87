"""What no run needs any more: old images, checkpoints beyond a number, and what interrupted work left."""
