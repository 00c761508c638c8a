"""Policies that are asked a step at a time, and the estimators they rest on."""
