"""What the definition says that has no test yet, with the reason."""

from __future__ import annotations

RANKS = "between ranks"
ASYNC = "the async engine, next issue"
OBSERVED = "logs and traces, a later issue"

# (place, statement, reason)
LATER: tuple[tuple[str, str, str], ...] = (
    ("picture 1", "a process on another rank computes, and is a target", RANKS),
    ("picture 8", "a remote value is what the peer sent under the key, and a stitch to it sends", RANKS),
    ("stitch 3", "values that meet at a remote's key are reduced in stitch order before they are sent", RANKS),
    ("run 11", "runs of one graph may be under way at once in asyncio and trio", ASYNC),
    ("knot 6", "logs and traces call nodes by their ids", OBSERVED),
    ("corner 11", "an asynchronous run awaits what a plain function returned to be awaited", ASYNC),
    (
        "corner 12",
        "in an asynchronous run a node's own cancellation or StopIteration becomes the graph's exception",
        ASYNC,
    ),
    ("corner 13", "an asynchronous run keeps each node's context variables from the others", ASYNC),
    ("corner 15", "an item of a stream is a mapping of input overrides or a tuple of arguments", ASYNC),
    ("corner 16", "links to other ranks do not go into a forked child", RANKS),
    ("program 3", "a middle rank's graph of two remotes runs", RANKS),
    ("program 4", "many graphs use the same keys between the same ranks, unclosed, and the program ends", RANKS),
    (
        "program 5",
        "what the early exit and the hooks do on each rank, with real ranks (imitated in one process: TABLE)",
        RANKS,
    ),
    ("program 7", "objects and barriers of the user's gloo group go on beside ours", RANKS),
)
