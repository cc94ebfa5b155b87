"""The user's code: which files belong to it, and the copy that a run keeps."""
