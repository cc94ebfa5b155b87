"""What the machine is: for now, its hosts in order."""
