"""Step costs composed of kernel times that others measured: tables, the shapes of a model, the law of mixed calls."""
