"""The notebook view of a trace."""

from __future__ import annotations

import base64
import html
import io

from unrolled.see.figures.labels import plain
from unrolled.see.trace import ModelTrace


def as_html(trace: ModelTrace) -> str:
    """The answer, the tokens shaded by their loss, and one figure."""
    worst = max(float(trace.losses.max()), 1e-9)
    cells = [
        f'<span title="loss {float(loss):.3f}" style="background:rgba(213,94,0,{0.8 * float(loss) / worst:.2f});'
        f'padding:1px 3px">{html.escape(plain(token))}</span>'
        for token, loss in zip(trace.losses_of, trace.losses, strict=True)
    ]
    kind = next((k for k in ("attention", "frames", "gates", "states") if k in trace.kinds), "losses")
    file = io.BytesIO()
    trace.figure(kind).savefig(file, format="png", dpi=80)
    picture = base64.b64encode(file.getvalue()).decode()
    return (
        f"<div><p>{html.escape(trace.task)}: {html.escape(trace.summary)}</p><p>{''.join(cells)}</p>"
        f'<img alt="{kind}" src="data:image/png;base64,{picture}">'
        f"<p>figure(kind): {', '.join(trace.kinds)}</p></div>"
    )
