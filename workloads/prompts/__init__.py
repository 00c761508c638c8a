"""What is sent as a prompt: token ids, text or a data set's own."""
