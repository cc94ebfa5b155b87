"""The programs that run inside the allocation: the supervisor on the first node, and a wrapper beside every rank."""
