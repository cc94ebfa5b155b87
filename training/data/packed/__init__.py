"""Data sets with names: fetched by `torusrun data get`, packed into one file each, and never downloaded by a job."""
