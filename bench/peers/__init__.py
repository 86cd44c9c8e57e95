"""How each contender builds one of our graphs, or reads inside one of our models.

A peer is imported inside the function that builds with it: one that is not installed is an `ImportError` there, and a
row of the table.
"""
