"""The commands of `bench`, one idea a file: each reads its options and calls one function."""
