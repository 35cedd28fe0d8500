"""Who may use a page that other machines reach: those with its link, with a password, or everyone.

>>> Login(token="secret").is_known(Headers({"authorization": "Bearer secret"}))
True
"""

import base64
import binascii
import hashlib
import hmac
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response

from gptcore.api.access import GUESSES, Rate, Refused, Scope, visitor


class Login:
    """Lets in who knows the token, from a link, a cookie or a Bearer key, or user and password.

    `user`, `password`: of Basic authentication (RFC 7617), instead of the token.
    """

    def __init__(self, token: str = "", user: str = "", password: str = ""):
        self.token, self.user = token, user
        self.basic = f"{user}:{password}".encode() if user else b""
        # Browsers send a host's cookies to all of its ports: each server has a name of its own.
        self.cookie = f"gptcore-{hashlib.sha256(token.encode()).hexdigest()[:8]}"
        # Not with those of the API's keys: any page may send a browser to a wrong link.
        self.guesses = Rate(GUESSES, "wrong links or passwords from your address")

    def check(self, scope: Scope, behind_proxy: bool) -> Response | None:
        """Raise Refused for a stranger; return the answer to one who comes with the link."""
        headers, client = Headers(scope=scope), visitor(scope, behind_proxy)
        link = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        is_guess = bool(link and self.token) or "authorization" in headers
        if is_guess:
            self.guesses.check(client)
        if self.token and link and same(link, self.token):
            # Lax, not strict: the link may be in another site's message.
            answer = RedirectResponse("./", 303)  # a proxy may serve this under a path
            answer.set_cookie(self.cookie, self.token, httponly=True, samesite="lax")
            return answer
        if self.is_known(headers):
            return None
        if is_guess:
            self.guesses.count(client)
        if self.user:
            raise Refused(401, "this page asks for a user and a password")
        raise Refused(401, "open this page by the link that the server printed at its start")

    def is_known(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if self.user:
            return kind.lower() == "basic" and hmac.compare_digest(decoded(given), self.basic)
        # The standard library's parser gives up at the first cookie that it does not understand.
        cookies = cookie_parser(headers.get("cookie", ""))
        given = given.strip() if kind.lower() == "bearer" else cookies.get(self.cookie, "")
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
