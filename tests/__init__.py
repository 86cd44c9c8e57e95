"""The tests mirror the code: `tests/graph` is about `weave/graph`, and so on; what spans the layers stands at the top.

small.py            the smallest graphs and modules, for those who need no particular ones
core_api_table.py   the fixed names, as data
graphs/             random graphs against an evaluator that knows nothing of the engine
"""
