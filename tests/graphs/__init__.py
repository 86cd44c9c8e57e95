"""Random graphs: what a run of one gives equals what an evaluator that knows nothing of the engine gives.

vocabulary.py   every function, adapter, reducer and constant that a graph may name; `blend`, which takes anything
ways.py         the ways in which a graph is given a function: plain, inline, async; what it computes stays the same
models.py       the modules that random graphs reach into
description.py  what a graph is, as plain data that prints as Python; what parts of it are made of
strategy.py     how hypothesis draws one
naive.py        the evaluator, written from the definition of a stitched graph, with nothing of the engine's
passage.py      the evaluator's forward of one module
aliasing.py     the evaluator's book about tensors that several consumers hold
stitching.py    the same graph through weave's public API, called and awaited
agreement.py    whether the two say the same: values, objects, gradients, errors
features.py     what a drawn graph has in it, to see that everything comes up
"""
