"""The error of one request."""


class RequestError(RuntimeError):
    pass
