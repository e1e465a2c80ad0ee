"""The product's REST side as a Ryu application: `ryu-manager apps.fabric apps.inspection`.

It listens where `rest_listen` says, unless Ryu's own --wsapi-host and --wsapi-port are given. What is answered, and
how, is in `rest`; here it only meets Ryu's WSGI.
"""

import logging
import socket
import sys
from typing import Any

from eventlet.semaphore import Semaphore
from ryu import cfg
from ryu.app.wsgi import ControllerBase, Request, Response, WSGIApplication, route
from ryu.base import app_manager

from apps import settings
from apps.forms import Listen
from apps.rest import Rest
from controller.hub import Slices

LOG = logging.getLogger("signalbox.inspection")


class Everything(ControllerBase):
    """Every path that no other application of this Ryu has taken."""

    @route("signalbox", "/{path:.*}")
    def answer(self, req: Request, **_: Any) -> Response:
        answer = self.data["rest"].answer(req.method, req.path_info, req.query_string)
        body = [] if req.method == "HEAD" else answer.body
        # `content_type` alone would add a charset to JSON, which has none.
        return Response(status=answer.status, headerlist=[("Content-Type", answer.type)], app_iter=body)


class Inspection(app_manager.RyuApp):
    _CONTEXTS = {"wsgi": WSGIApplication}  # noqa: RUF012  (Ryu's contract)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.name = "inspection"
        self._wsgi = kwargs["wsgi"]
        try:
            config = settings.current()
        except settings.ConfigError as error:
            sys.exit(f"signalbox: {error}")
        cfg.CONF.set_default("wsapi_host", config.rest_address.host)
        cfg.CONF.set_default("wsapi_port", config.rest_address.port)
        if config.log_level != "debug":
            logging.getLogger("ryu.lib.hub").setLevel(logging.WARNING)  # two lines for every request

    def start(self) -> Any:
        """Takes the paths that are left: by now the other applications have registered theirs."""
        at = Listen(cfg.CONF.wsapi_host, cfg.CONF.wsapi_port)
        try:
            socket.create_server(at, family=socket.AF_INET6 if ":" in at.host else socket.AF_INET).close()
        except OSError as error:  # Ryu would say it with a traceback
            sys.exit(f"signalbox: rest_listen: cannot listen on {at}: {error.strerror}")
        LOG.info("REST at %s", at)
        serve(self._wsgi, Rest(lambda: app_manager.lookup_service_brick("fabric"), Slices, Semaphore()))
        return super().start()


def serve(wsgi: WSGIApplication, rest: Rest) -> None:
    wsgi.register(Everything, {"rest": rest})
