"""Analysis of traces: plain records of what took the time, what limits it, what a change gained."""
