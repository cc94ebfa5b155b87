"""When gradients are ready in the backward pass; training/sync/buckets says which are reduced together."""
