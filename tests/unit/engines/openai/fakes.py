"""A link that answers from a table of paths."""

import json

from onegate.engines.http.link import HttpStatus


class TableLink:
    """`answers`: by path, a document, a text, or an error that is raised."""

    def __init__(self, **answers):
        self.answers = {f"/{path.replace('__', '/')}": said for path, said in answers.items()}
        self.asked = []

    async def get(self, path, *, timeout_s=0.0):
        return self._answer(path)

    async def post(self, path, body, *, timeout_s=0.0, max_bytes=0):
        self.asked.append((path, json.loads(body)))
        return self._answer(path)

    def _answer(self, path):
        said = self.answers.get(path, HttpStatus(404, b"", None))
        if isinstance(said, Exception):
            raise said
        return said.encode() if isinstance(said, str) else json.dumps(said).encode()
