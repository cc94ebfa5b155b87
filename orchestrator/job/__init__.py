"""What runs inside the allocation: the supervisor on the first node, one small wrapper beside every rank."""
