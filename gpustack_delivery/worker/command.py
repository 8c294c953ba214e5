"""`gpustack-delivery worker`: the worker as a process, from its flags to its signals."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from pathlib import Path

from gpustack_delivery.adapters.host import SystemClock
from gpustack_delivery.adapters.kube import SERVICE_ACCOUNT, connect
from gpustack_delivery.adapters.plugin_port import PluginPort
from gpustack_delivery.errors import ConfigurationFault
from gpustack_delivery.redaction import Token
from gpustack_delivery.worker.leader import LEASE_SECONDS
from gpustack_delivery.worker.operator import Aggregated, Worker
from gpustack_delivery.worker.options import WorkerOptions

_LEVELS = ("debug", "info", "warning", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add = parser.add_argument
    add("--namespace", required=True, help="the operator namespace")
    add(
        "--model-manager-service-account",
        required=True,
        metavar="NAME",
        help="the node plugin's ServiceAccount in the operator namespace",
    )
    add("--kubeconfig", default="", metavar="FILE", help="default: the Pod's service account")
    _add_serving_arguments(parser)
    add(
        "--run-consumers",
        action="store_true",
        help="run the Pods of ModelDeployments and Instances; not beside the full operator",
    )
    add(
        "--token-file",
        default=str(SERVICE_ACCOUNT / "token"),
        metavar="FILE",
        help="the worker's own token, for an API server that serves no SelfSubjectReview",
    )
    add(
        "--lease-seconds",
        default=str(LEASE_SECONDS),
        metavar="SECONDS",
        help=f"how long a silent leader is waited for (default: {LEASE_SECONDS})",
    )
    add("--log-level", default="info", help=f"one of {', '.join(_LEVELS)} (default: info)")


def _add_serving_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of what the worker serves."""
    add = parser.add_argument
    add("--host", default="0.0.0.0", metavar="ADDRESS", help="listen here (default: everywhere)")  # noqa: S104 - webhooks are called from the control plane
    add(
        "--webhook-port",
        default="9443",
        metavar="PORT",
        help="webhooks, metrics and health (default: 9443)",
    )
    add(
        "--webhook-service",
        default="gpustack-delivery-worker",
        metavar="NAME",
        help="the Service in front of the worker, and its Lease",
    )
    add(
        "--webhook-configuration",
        default="",
        metavar="NAME",
        help="webhook configurations to keep trusting the worker's certificate",
    )
    add(
        "--public-api-service",
        default="",
        metavar="NAME",
        help="the Service in front of the public API (default: none is served)",
    )
    add(
        "--public-api-port",
        default="9444",
        metavar="PORT",
        help="the public API, called by the aggregator alone (default: 9444)",
    )
    add(
        "--certificate-directory",
        default="",
        metavar="DIR",
        help="serve DIR/tls.crt with DIR/tls.key, read again when they change",
    )


def run(args: argparse.Namespace) -> int:
    """Run the worker until it is told to stop."""
    if args.log_level not in _LEVELS:
        raise ConfigurationFault(f"--log-level must be one of {', '.join(_LEVELS)}")
    options = _options(args)
    logging.basicConfig(
        level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    kube = connect(args.kubeconfig)
    clock = SystemClock()
    public = Aggregated(kube, PluginPort(clock))
    worker = Worker(options, clock, kube, public=public)
    try:
        worker.start()
        stopping.wait()
    finally:
        worker.stop()
        kube.close()
    return 0


def _options(args: argparse.Namespace) -> WorkerOptions:
    token_file = Path(args.token_file)
    directory = args.certificate_directory
    return WorkerOptions(
        namespace=args.namespace,
        model_manager_service_account=args.model_manager_service_account,
        host=args.host,
        webhook_port=_whole("--webhook-port", args.webhook_port),
        webhook_service=args.webhook_service,
        webhook_configuration=args.webhook_configuration,
        public_api_service=args.public_api_service,
        public_api_port=_whole("--public-api-port", args.public_api_port),
        runs_consumers=args.run_consumers,
        certificate_directory=Path(directory) if directory else None,
        lease_seconds=_whole("--lease-seconds", args.lease_seconds),
        own_token=lambda: _read_token(token_file),
    )


def _whole(flag: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ConfigurationFault(f"{flag} must be a whole number")
    return int(text)


def _read_token(path: Path) -> Token | None:
    try:
        return Token(path.read_text(encoding="ascii").strip())
    except (OSError, UnicodeDecodeError):
        return None
