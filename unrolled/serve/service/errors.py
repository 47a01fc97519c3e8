"""Errors of the service, in the shape that OpenAI's clients read."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from unrolled.errors import UserError
from unrolled.serve.service.mistakes import mistake_in

M = TypeVar("M", bound=BaseModel)
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

# status → code and message of a request that no route takes
ROUTING: dict[int, tuple[str | None, str]] = {
    404: ("not_found", "There is nothing at this address. /docs has all routes."),
    405: ("method_not_allowed", "This address takes another method. /docs has the method of each route."),
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


def checked(model: type[M], body: str | bytes) -> M:
    """A body as JSON; a mistake names its key, and the keys that there are."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        message, code, param = mistake_in(error, model)
        raise ServiceError(400, message, code, param) from None


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
        message, code, param = mistake_in(error)
        return ServiceError(400, message, code, param)
    if isinstance(error, HTTPException):
        name, text = ROUTING.get(error.status_code, (None, f"{error.detail}."))
        return ServiceError(error.status_code, text, name, headers=error.headers)
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = f"{place[0].filename}:{place[0].lineno}" if place else "unknown"
    LOG.error("internal error: %s at %s", type(error).__name__, where)  # its message may hold a user's text
    LOG.debug("internal error", exc_info=error)
    return ServiceError(500, f"The service failed with {type(error).__name__}. Its log says where.", "internal_error")


def add_handlers(app: FastAPI) -> None:
    """Answer every error of a route in the one shape."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        return as_service_error(error).response()

    for kind in (ServiceError, UserError, ValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
