"""Files that nobody can lead elsewhere, their locks, and a user's own folder on a node. They need no torch."""
