"""Takes loops, scans and branches of a model; gives them run under another interpretation."""
