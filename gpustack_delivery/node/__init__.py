"""The node plugin: a CSI driver that downloads a model once, verifies it and mounts it read-only.

`plugin` composes it. A mount call runs down `csi` to `mounting`; downloads run in `attempts`; the
two meet only in `trees` (is it published?) and `attempts` (how far?). Everything on the disk is
written so that a kill at any instruction leaves a state the next start understands: there is no
shutdown work.
"""
