"""What the emulated server knows of each kind: how it is decoded, defaulted, validated, selected
and tabulated.
"""
