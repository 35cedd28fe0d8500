"""Who may use a page that other machines reach: those with its link, with a password, or everyone.

>>> Login(token="secret").is_known(Headers({"cookie": "gptcore=secret"}))
True
"""

import base64
import binascii
import hmac
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response

from gptcore.api.access import Rate, Refused, Scope, visitor

COOKIE = "gptcore"
GUESSES = 10  # of one address in a minute


class Login:
    """Lets in who knows the token, from a link, a cookie or a Bearer key, or user and password.

    `user`, `password`: of Basic authentication (RFC 7617), instead of the token.
    """

    def __init__(
        self, token: str = "", user: str = "", password: str = "", behind_proxy: bool = False
    ):
        self.token, self.user, self.behind_proxy = token, user, behind_proxy
        self.basic = f"{user}:{password}".encode() if user else b""
        self.guesses = Rate(GUESSES)

    def check(self, scope: Scope) -> Response | None:
        """Raise Refused for a stranger; return the answer to one who comes with the link."""
        headers, client = Headers(scope=scope), visitor(scope, self.behind_proxy)
        link = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        is_guess = bool(link) or "authorization" in headers
        if is_guess:
            self.guesses.check(client)
        if self.token and link and same(link, self.token):
            # Lax, not strict: the link may be in another site's message.
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, self.token, httponly=True, samesite="lax")
            return answer
        if self.is_known(headers):
            return None
        if is_guess:
            self.guesses.count(client)
        if self.user:
            raise Refused(401, "this page asks for a user and a password")
        raise Refused(401, "open this page by the link that it printed when it started")

    def is_known(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if self.user:
            return kind.lower() == "basic" and hmac.compare_digest(decoded(given), self.basic)
        given = given.strip() if kind.lower() == "bearer" else cookie(headers)
        return same(given, self.token)

    @property
    def challenge(self) -> dict[str, str]:
        """The header with which a browser asks for the password."""
        return {"WWW-Authenticate": 'Basic realm="gptcore", charset="UTF-8"'} if self.user else {}


def same(given: str, known: str) -> bool:
    return bool(known) and hmac.compare_digest(given.encode(), known.encode())


def decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def cookie(headers: Headers) -> str:
    # The cookies of all ports of a host arrive together, and the standard library's parser gives up
    # at the first that it does not understand.
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
