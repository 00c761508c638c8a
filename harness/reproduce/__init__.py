"""Published results made again, beside what was published."""
