"""The steps of the edge, each an ASGI middleware; `utils.edge.stack` puts them in order.

`context`    names the request, for logs, metrics, traces and everything that answers it
`answers`    gives every answer its headers, counts it, and bounds what waits for its reader
`refusals`   turns errors into answers
`paths`      refuses too large heads, unknown paths and methods
`access`     refuses foreign web pages, unknown keys and callers above their rate
`load`       refuses work for which there is no room, or no Triton
`body`       reads the body, and lets the work be ended early
`work`       runs the work in a slot and within a time limit
"""
