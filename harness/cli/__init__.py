"""The command line: options and exit codes, a file a command."""
