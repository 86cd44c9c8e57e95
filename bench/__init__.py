"""`make bench`: how weave compares with what people would otherwise take. `python -m bench --help` for the options."""

# The layout:
#   __main__.py       options, the order of things, the exit status
#   pairing.py        how something is timed: who takes turns with whom, and what the spread is
#   comparing.py      a comparison: build each contender, see that all give the same, time them, make rows
#   rows.py           what a result is, and its JSON
#   table.py          what is shown: the table, the progress bar
#   about.py          on what it ran
#
#   passages.py       section *passages*: capturing inside a model, leaving it early
#   engine_sync.py    section *engine*: a call in one thread; growth with size
#   engine_async.py   ... on asyncio and trio
#   makespan.py       ... how near to the critical path
#   at_once.py        ... many runs of one graph at the same time
#   failure.py        ... one node fails while a thousand wait
#   tying.py          ... what knot() takes
#   memory.py         ... what a plan and a run weigh
#   graphs.py         the graphs that all of them run
#   peers/            how each contender builds and runs one of these graphs; imported only when it is asked for
#
# A new section is a module with `experiments(pace)`, listed in `__main__.SECTIONS`.
