"""Errors of the service, in the shape that OpenAI's clients read."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from unrolled.errors import UserError

LOG = logging.getLogger("unrolled.serve")

# status → type, as in OpenAI's errors
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "timeout_error",
}


class ErrorDetail(BaseModel):
    """The mistake, and the part of the request that it is about."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorDetail


class ServiceError(Exception):
    """An error with its HTTP status. `code` is a short name for programs, `param` the key that it is about."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        return JSONResponse(self.body, self.status, self.headers)


def unsupported(name: str, problem: str) -> ServiceError:
    """The error of a key that the service knows and cannot honour."""
    return ServiceError(400, f"{name} {problem}", "unsupported_parameter", name)


def as_service_error(error: Exception) -> ServiceError:
    """Any error as one to answer with. What is not the client's mistake is logged, without its message."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, UserError):
        return ServiceError(400, str(error), "invalid_value")
    if isinstance(error, ValidationError):
        return invalid(error)
    if isinstance(error, HTTPException):
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
        return ServiceError(error.status_code, f"{error.detail}.", code, headers=error.headers)
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = f"{place[0].filename}:{place[0].lineno}" if place else "unknown"
    LOG.error("internal error: %s at %s", type(error).__name__, where)  # its message may hold a user's text
    LOG.debug("internal error", exc_info=error)
    return ServiceError(500, f"The service failed with {type(error).__name__}. Its log says where.", "internal_error")


def invalid(error: ValidationError) -> ServiceError:
    """The first mistake of a body as an error that names its key."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    param = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("function-", "constrained-")))
    more = f" There are {error.error_count() - 1} more mistakes." if error.error_count() > 1 else ""
    return ServiceError(400, f"{param or 'The body'}: {first['msg']}.{more}", first["type"], param or None)


def add_handlers(app: FastAPI) -> None:
    """Answer every error of a route in the one shape."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        return as_service_error(error).response()

    for kind in (ServiceError, UserError, ValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
