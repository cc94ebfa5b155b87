"""The processes of the next attempt of a run that keeps going, started while an attempt runs."""
