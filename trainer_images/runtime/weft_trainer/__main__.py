"""``python -m weft_trainer``: the process that an engine starts for each learner."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # imports make next to no garbage

# isort: split

import os
import secrets
import signal
import socket
import sys
from typing import NoReturn, TextIO, cast

from weft_trainer.config import Config, ConfigError
from weft_trainer.control import Control
from weft_trainer.errors import Fenced, TrainerError, warn
from weft_trainer.machine.prctl import hide_environment
from weft_trainer.machine.watchdog import Watchdog
from weft_trainer.service.client import ApiClient
from weft_trainer.service.mask import MaskedStream


def main() -> int:
    control = Control()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: control.request_stop())
    # In a sandbox, the local engine has blocked them until now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
    hide_environment()
    try:
        config = Config.from_environment(os.environ)
    except ConfigError as error:
        warn(str(error))
        return 2
    watchdog = Watchdog()
    try:
        api = ApiClient(config.api_url, config.token, config.rank, secrets.token_hex(16), control)
        # Engines show the end of this output as the reason of a learner that has not reported its own.
        sys.stderr = cast(TextIO, MaskedStream(sys.stderr, api.mask))
        answer = None if config.leftovers else control.begin(lambda: api.start(socket.gethostname()))
        from weft_trainer.agent import Agent  # its imports take as long as the API's answer

        gc.freeze()  # no collection looks at what the imports have made
        gc.enable()
        agent = Agent(config, control, watchdog, api)
        return agent.stand_aside() if answer is None else agent.run(answer)
    except Fenced:
        return 0
    except TrainerError as error:
        warn(str(error))
        return 1
    except Exception:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        watchdog.end()


def run() -> NoReturn:
    """Be the agent of this process's environment, and end the process."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of an abandoned download must not hold the process


if __name__ == "__main__":
    run()
