"""A simulation as a Chrome trace: open it in chrome://tracing or Perfetto, one row for each device and each pair of devices that talk."""

from __future__ import annotations

import json

from cost_model.simulator import Simulation


def chrome_trace(simulation: Simulation) -> str:
    """JSON text, the same bytes for the same simulation; times in microseconds."""
    rows = sorted({event.device for event in simulation.events})
    index = {row: i for i, row in enumerate(rows)}
    names = [{"name": "thread_name", "ph": "M", "pid": 0, "tid": index[row], "args": {"name": row}} for row in rows]
    spans = [
        {
            "name": event.name,
            "cat": event.kind,
            "ph": "X",
            "pid": 0,
            "tid": index[event.device],
            "ts": round(event.start_seconds * 1e6, 3),
            "dur": round(event.duration_seconds * 1e6, 3),
        }
        for event in simulation.events
    ]
    return json.dumps({"traceEvents": [*names, *spans], "displayTimeUnit": "ms"}, sort_keys=True)
