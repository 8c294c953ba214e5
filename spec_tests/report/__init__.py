"""What a run of the suite leaves behind: a verdict for every rule, for programs and for people."""
