"""What the machine is: hosts in order, the node they are copies of, the switches above them."""
