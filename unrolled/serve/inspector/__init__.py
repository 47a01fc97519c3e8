"""The inspection page: its server, its reports, and the models and input it shows."""

from unrolled.serve.inspector.asked import Asked
from unrolled.serve.inspector.inspection import Inspection
from unrolled.serve.inspector.page import serve
from unrolled.serve.inspector.recording import save_report

__all__ = ["Asked", "Inspection", "save_report", "serve"]
