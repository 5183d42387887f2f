"""What answers rows: the protocol that the queue knows, vLLM behind it, and a fake for tests."""
