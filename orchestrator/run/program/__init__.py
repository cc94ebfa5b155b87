"""The program of a rank: torusrun's training, its measurement, or the user's own command."""
