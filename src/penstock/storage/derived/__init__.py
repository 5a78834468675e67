"""Derived indexes: sorted entries for the records of a log, made from it alone, in files beside closed segments."""
