"""`gpustack-delivery worker`: the worker as a process, from its flags to its signals."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Final

from gpustack_delivery.adapters.ending import ending
from gpustack_delivery.adapters.host import SystemClock
from gpustack_delivery.adapters.kube import SERVICE_ACCOUNT, connect
from gpustack_delivery.adapters.plugin_port import PluginPort
from gpustack_delivery.errors import ConfigurationFault, Unreachable
from gpustack_delivery.httpd import everywhere
from gpustack_delivery.ports import Clock
from gpustack_delivery.redaction import Token
from gpustack_delivery.terminal import whole_number
from gpustack_delivery.worker.certificates import Directory, ServingCertificate
from gpustack_delivery.worker.leader import LEASE_SECONDS, MAX_LEASE_SECONDS
from gpustack_delivery.worker.operator import Aggregated, Worker
from gpustack_delivery.worker.options import MIN_LEASE_SECONDS, WorkerOptions

_TOKEN_FILE: Final = SERVICE_ACCOUNT / "token"
_LEVELS: Final = ("debug", "info", "warning", "error")


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
        "--complete-volumes",
        action="store_true",
        help="complete Pods' inline volumes that name their artifact alone",
    )
    add(
        "--token-file",
        default=str(_TOKEN_FILE),
        metavar="FILE",
        help="the worker's own token, for an API server that serves no SelfSubjectReview",
    )
    add(
        "--lease-seconds",
        type=whole_number(MIN_LEASE_SECONDS, MAX_LEASE_SECONDS),
        default=LEASE_SECONDS,
        metavar="SECONDS",
        help=f"how long a silent leader is waited for (default: {LEASE_SECONDS})",
    )
    add("--log-level", choices=_LEVELS, default="info", help="default: info")


def _add_serving_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of what the worker serves."""
    add = parser.add_argument
    add("--host", default=everywhere(), metavar="ADDRESS", help="listen here (default: everywhere)")
    add(
        "--webhook-port",
        type=whole_number(0, 65535),
        default=9443,
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
        type=whole_number(0, 65535),
        default=9444,
        metavar="PORT",
        help="the public API, called by the aggregator alone (default: 9444)",
    )
    add(
        "--certificate-directory",
        default="",
        metavar="DIR",
        help="serve DIR/tls.crt with DIR/tls.key, read again when they change",
    )


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Run the worker until it is told to stop, on the machine's clock unless another is given."""
    options = _options(args)
    logging.basicConfig(
        level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    with ending() as end:
        kube = connect(args.kubeconfig)
        clock = clock or SystemClock()
        public = Aggregated(kube, PluginPort())
        worker = Worker(options, clock, kube, public=public)

        def abandon() -> None:
            worker.retire()
            kube.hang_up()

        end.told, end.hurry = abandon, kube.hang_up
        try:
            worker.start()
            end.told = worker.retire  # from now on there is a Lease to give back
            end.wait()
        except Unreachable:
            if not end.come:
                raise
        finally:
            worker.stop()
            kube.close()
    return 0


def _options(args: argparse.Namespace) -> WorkerOptions:
    token_file = _token_file(args.token_file)
    directory = Path(args.certificate_directory) if args.certificate_directory else None
    if directory is not None:
        try:
            ServingCertificate(Directory(directory))
        except ConfigurationFault as fault:
            raise ConfigurationFault(f"--certificate-directory: {fault}") from None
    return WorkerOptions(
        namespace=args.namespace,
        model_manager_service_account=args.model_manager_service_account,
        host=args.host,
        webhook_port=args.webhook_port,
        webhook_service=args.webhook_service,
        webhook_configuration=args.webhook_configuration,
        public_api_service=args.public_api_service,
        public_api_port=args.public_api_port,
        runs_consumers=args.run_consumers,
        completes_volumes=args.complete_volumes,
        certificate_directory=directory,
        lease_seconds=args.lease_seconds,
        own_token=lambda: _read_token(token_file),
    )


def _token_file(named: str) -> Path:
    """Check the token file, if one was named: the default need not be there."""
    path = Path(named)
    if path != _TOKEN_FILE and not _read_token(path):
        raise ConfigurationFault(
            f"--token-file {named!r} cannot be read as a token: name the worker's own, or leave "
            "the flag away"
        )
    return path


def _read_token(path: Path) -> Token | None:
    try:
        return Token(path.read_text(encoding="ascii").strip())
    except (OSError, UnicodeDecodeError):
        return None
