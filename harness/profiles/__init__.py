"""What a GPU and a model cost: profile files, linear and roofline step costs, pairs of the two."""
