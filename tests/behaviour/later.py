"""What the definition says that has no test yet, with the reason."""

from __future__ import annotations

RANKS = "between ranks"
OBSERVED = "logs and traces, a later issue"

# (place, statement, reason)
LATER: tuple[tuple[str, str, str], ...] = (
    ("picture 1", "a process on another rank computes, and is a target", RANKS),
    ("picture 8", "a remote value is what the peer sent under the key, and a stitch to it sends", RANKS),
    ("stitch 3", "values that meet at a remote's key are reduced in stitch order before they are sent", RANKS),
    ("knot 6", "logs and traces call nodes by their ids", OBSERVED),
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
