"""The public API: `worker.gpustack.ai/v1` and `gpustack.ai/v1`, behind the cluster's aggregator.

The API server passes a request on with the name of who asked. This server believes the name because
the request came with the front proxy's certificate, asks the API server whether that person may,
and only then does what was asked: for the five kinds it sends the request on to the stored
`v1alpha1` under the worker's own identity, for Settings it reads or writes their Secret, and
`progress` is computed and stored nowhere.

Nothing else depends on it. Mounts, webhooks and controllers go on while it is down.

Rules: VW-RES-01, VW-RES-02, VW-AUT-01, VW-PRG-01..03, NS-OWN-09, NS-MET-09, OP-SET-01.
"""
