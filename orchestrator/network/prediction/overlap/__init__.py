"""When gradients are ready in the backward pass; training/sync/buckets decides which are reduced together."""
