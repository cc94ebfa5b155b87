"""The checks of a site for `doctor`, one after the other."""
