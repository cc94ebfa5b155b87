"""What attempts wrote: which files, their lines in the order of time, the first failure in them."""
