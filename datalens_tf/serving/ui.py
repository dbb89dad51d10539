"""Pages on which the owner of a run looks at its images, class by class: for a browser on the same machine.

The pages run no script. Every request needs the token, which the first address has and a cookie keeps. It must also
call the server by a name that this machine has for itself, so that no stranger's page can ask in the owner's browser.
"""

import hmac
import io
import pathlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import jinja2
import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from datalens_tf import _files, _text
from datalens_tf.accounting.accountants import round_up
from datalens_tf.accounting.wording import meaning, render_text
from datalens_tf.data.image_grid import image_grid, png_bytes
from datalens_tf.serving.signatures import MAX_IMAGES

Draw = Callable[..., tuple[np.ndarray, np.ndarray]]  # As `Synthesizer.sample`.

_COLUMNS, _SCALE = 12, 3
_COOKIE = "datalens_token"
_LARGEST_SEED = 2**31 - 1
_HEADERS = {"Content-Security-Policy": "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; "
                                       "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
            "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def application(draw: Draw, show: Draw, class_names: Sequence[str], statement: Mapping[str, Any] | None,
                reports: Mapping[str, pathlib.Path], *, token: str) -> Starlette:
    """Pages of one generator, as an ASGI application.

    | address | what is there |
    |---|---|
    | `/` | images of every class, or of the one that is asked for; the guarantee; what can be downloaded |
    | `/sheet.png`, `/images.npz`, `/images.zip` | images of `label` (all classes where it is empty) by `seed` |
    | `/report`, `/private_report` | reports of the run, where there are any |

    Args:
      draw: takes a number, `labels` and a `seed`; gives images uint8 [n, H, W, C] and labels [n], to download.
      show: the same, to look at.
      class_names: one text per class.
      statement: on the generator's privacy; None where it has none.
      reports: address -> HTML file, of those that exist.
      token: the token that every request needs.
    """
    pages = _Pages(draw, show, class_names, statement, reports)
    routes = [Route("/", pages.first), Route("/sheet.png", pages.sheet), Route("/images.npz", pages.arrays),
              Route("/images.zip", pages.pictures), *(Route(f"/{name}", pages.report) for name in reports)]

    async def guarded(request: Request, call: Callable[[Request], Any]) -> Response:
        given = request.query_params.get("token")
        if not hmac.compare_digest((given or request.cookies.get(_COOKIE, "")).encode(), token.encode()):
            return PlainTextResponse("Open the address that `datalens ui` printed, with its token.", 401)
        if given is not None:  # The token leaves the address, so that nobody passes it on with the address.
            answer: Response = RedirectResponse("/", 303)
            answer.set_cookie(_COOKIE, token, httponly=True, samesite="strict")
            return answer
        answer = await call(request)
        answer.headers.update(_HEADERS)
        return answer

    return Starlette(routes=routes, middleware=[
        Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1"]),
        Middleware(BaseHTTPMiddleware, dispatch=guarded)])


class _Pages:
    """The answers of each address. They are not coroutines, so that drawing does not hold up other requests."""

    def __init__(self, draw: Draw, show: Draw, class_names: Sequence[str], statement: Mapping[str, Any] | None,
                 reports: Mapping[str, pathlib.Path]):
        self._draw, self._show = draw, show
        self._names, self._statement, self._reports = list(class_names), statement, reports
        environment = jinja2.Environment(loader=jinja2.PackageLoader("datalens_tf.serving"), autoescape=True,
                                         undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                                         finalize=_text.finalize)
        self._page = environment.get_template("ui.html.j2")

    def first(self, request: Request) -> Response:
        label, seed, count = self._asked(request)
        statement = self._statement
        private = statement is not None and statement["private"]
        return HTMLResponse(self._page.render(
            class_names=self._names, label=label, seed=seed, count=count, most=MAX_IMAGES, reports=self._reports,
            query=urlencode({"label": "" if label is None else label, "seed": seed, "count": count}),
            rows=list(enumerate(self._names)) if label is None else [(label, self._names[label])],
            columns=_COLUMNS, statement=statement, private=private,
            epsilon=round_up(statement["epsilon"]) if statement is not None and private else None,
            meaning=meaning(dict(statement)) if statement is not None and private else None,
            statement_text="" if statement is None else render_text(dict(statement))))

    def sheet(self, request: Request) -> Response:
        label, seed, _ = self._asked(request)
        rows = range(len(self._names)) if label is None else [label]
        images = np.stack([self._show(_COLUMNS, labels=np.full(_COLUMNS, row), seed=seed)[0] for row in rows])
        return Response(png_bytes(image_grid(images), _SCALE), media_type="image/png")

    def arrays(self, request: Request) -> Response:
        images, labels = self._images(*self._asked(request))
        return _download(_files.npz_bytes({"x": images, "y": labels}), "images.npz")

    def pictures(self, request: Request) -> Response:
        images, labels = self._images(*self._asked(request))
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for number, (image, label) in enumerate(zip(images, labels)):
                archive.writestr(zipfile.ZipInfo(f"{label}/{number:05}.png"), png_bytes(image))
        return _download(buffer.getvalue(), "images.zip")

    def report(self, request: Request) -> Response:
        return HTMLResponse(self._reports[request.url.path.removeprefix("/")].read_bytes())

    def _images(self, label: int | None, seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """`count` images of a class, or of all classes in turn."""
        labels = np.arange(count) % len(self._names) if label is None else np.full(count, label)
        return self._draw(count, labels=labels, seed=seed)

    def _asked(self, request: Request) -> tuple[int | None, int, int]:
        """Label, seed and number that a request is for."""
        def number(name: str, default: str, least: int, most: int) -> int:
            text = request.query_params.get(name) or default
            if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
                raise HTTPException(400, f"Expected {name} from {least} to {most}.")
            return int(text)

        label = number("label", "", 0, len(self._names) - 1) if request.query_params.get("label") else None
        return label, number("seed", "0", 0, _LARGEST_SEED), number("count", "100", 1, MAX_IMAGES)


def _download(data: bytes, name: str) -> Response:
    return Response(data, media_type="application/octet-stream",
                    headers={"Content-Disposition": f'attachment; filename="{name}"'})
