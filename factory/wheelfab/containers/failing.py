"""What the SDK raises when the engine fails, is stopped, or breaks off an answer."""

from __future__ import annotations

from docker.errors import DockerException
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

FAILED = (DockerException, RequestException, HTTPError, OSError)  # a stream that breaks: HTTPError
