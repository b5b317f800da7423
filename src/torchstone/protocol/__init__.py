"""What judge and worker share: messages, memory, environment variables."""
