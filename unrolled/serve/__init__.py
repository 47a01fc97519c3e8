"""The inspection page: its server, its reports, and the models and input it shows."""

from unrolled.serve.asked import Asked
from unrolled.serve.inspection import Inspection
from unrolled.serve.page import serve
from unrolled.serve.recording import save_report

__all__ = ["Asked", "Inspection", "save_report", "serve"]
