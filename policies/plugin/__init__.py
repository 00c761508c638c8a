"""How a policy rides inside vLLM: what it sees, what it narrows, what it writes down."""
