"""The user's code: the selection of its files, and the copy that a run keeps."""
