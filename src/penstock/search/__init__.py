"""Orders that are searched for: with list scheduling, a simulation in the loop, or a solver.

A generator of penstock.schedules reads like a paper's definition and knows no time. What is here
tries many orders under given prices and keeps the best; the records look the same, and the registry
names both.
"""
