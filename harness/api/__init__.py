"""For notebooks: runs, comparisons and traces as pandas DataFrames; `import schedbench` is its public name."""
