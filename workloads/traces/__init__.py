"""Production traces in the forms in which they are published, a file each."""
