"""Which runs may be shown: collected, checked against their own tables, published."""
