"""Servers and scheduler processes: started, asked, watched, ended."""
