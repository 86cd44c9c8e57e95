"""What weave reads of torch's own state: tensors' versions (streams and thread-local modes join them later)."""
