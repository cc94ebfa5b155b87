"""Dockerfiles: read as Docker does, and turned into the definition from which singularity and apptainer build."""
