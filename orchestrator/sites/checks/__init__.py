"""What a run needs of a site, one check after the other."""
