"""What replays a stream: engines behind one function each."""
