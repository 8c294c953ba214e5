"""Node-to-node sync: a node serves the trees it has published, and takes missing ones from others.

    options     how it is switched on and what it may cost
    tokens      whose requests are answered
    serving     the HTTPS listener
    discovery   who holds a digest, and who is about to
    streams     the requests that one source may get
    pulling     a listing and files from one peer
    searching   which peer next, and when it is the hub's turn
    syncing     all of it for one node, as the plugin holds it

Nothing a peer says is believed: a listing must make the digest that was asked for, and every file
must have the digest that the listing names.
"""
