"""A P4Runtime client for one switch: the only one that writes to it while it is open.

Specification: P4Runtime 1.4 (p4.org). Messages and stubs are those of the package finsy.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import TracebackType
from typing import Self

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc, rpc_code, rpc_status

from foretail.core.errors import ForetailError

SECONDS = 30
"""That a switch has for an answer."""

CONNECT_SECONDS = 10
"""That it has to be there."""

MOST_UPDATES = 1000
"""Of one request."""


class P4RuntimeSwitch:
    """A switch at an address; a context, in which this program is its primary controller.

    ForetailError from every method, in a sentence: nothing answers, another controller is the primary, or the switch
    refuses a request.

    Parameters
    ----------
    address : ``HOST:PORT``
    device_id : of the switch behind that address
    """

    def __init__(self, address: str, device_id: int = 0) -> None:
        self.address = address
        self.device_id = device_id
        self._election = U128.encode(1)

    def __enter__(self) -> Self:
        self._channel = grpc.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)])
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._requests: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()
        try:
            self._become_primary()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def program(self) -> p4i.P4Info | None:
        """Return what the switch's program offers to control planes; None when it has no program yet."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self.device_id, response_type=p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE
        )
        with self._explained("does not tell its program", without_program=True) as has_none:
            reply = self._stub.GetForwardingPipelineConfig(request, timeout=SECONDS)
        if has_none or not reply.HasField("config"):
            return None
        info: p4i.P4Info = reply.config.p4info
        return info

    def set_program(self, info: p4i.P4Info, binary: bytes) -> None:
        """Put another program onto the switch, which forgets its entries and registers."""
        with self._explained("does not take the program"):
            self._stub.SetForwardingPipelineConfig(
                p4r.SetForwardingPipelineConfigRequest(
                    device_id=self.device_id,
                    election_id=self._election,
                    action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                    config=p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=binary),
                ),
                timeout=SECONDS,
            )

    def write(self, updates: Iterable[p4r.Update]) -> None:
        """Send updates, in order."""
        left = list(updates)
        for start in range(0, len(left), MOST_UPDATES):
            request = p4r.WriteRequest(
                device_id=self.device_id, election_id=self._election, updates=left[start : start + MOST_UPDATES]
            )
            with self._explained("refuses an update"):
                self._stub.Write(request, timeout=SECONDS)

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        """Return what matches; fields that are not set match everything."""
        with self._explained("does not answer"):
            answers = self._stub.Read(p4r.ReadRequest(device_id=self.device_id, entities=entities), timeout=SECONDS)
            return [entity for answer in answers for entity in answer.entities]

    def _become_primary(self) -> None:
        arbitration = p4r.MasterArbitrationUpdate(device_id=self.device_id, election_id=self._election)
        self._requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        with self._explained("does not make this program its controller"):
            try:
                grpc.channel_ready_future(self._channel).result(timeout=CONNECT_SECONDS)
            except grpc.FutureTimeoutError:
                raise ForetailError(
                    f"nothing answers at {self.address}: start the switch with its P4Runtime server there, or name "
                    f"another address (switch=HOST:PORT)"
                ) from None
            self._stream = self._stub.StreamChannel(iter(self._requests.get, None), timeout=None)
            answer = self._first_answer()
        if answer.arbitration.status.code != rpc_code.OK:
            raise ForetailError(
                f"another controller is the primary of the switch at {self.address}: stop it, then try again"
            )

    def _first_answer(self) -> p4r.StreamMessageResponse:
        """The first message of the stream, which itself stays open without a deadline."""
        deadline = threading.Timer(CONNECT_SECONDS, self._stream.cancel)
        deadline.start()
        try:
            answer: p4r.StreamMessageResponse = next(self._stream)
            return answer
        except StopIteration:
            pass
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.CANCELLED:
                raise
        finally:
            deadline.cancel()
        raise ForetailError(
            f"the switch at {self.address} does not say within {CONNECT_SECONDS:g} s whether this program may control "
            f"it: look at its log"
        )

    def _close(self) -> None:
        self._requests.put(None)
        self._channel.close()

    @contextmanager
    def _explained(self, what: str, without_program: bool = False) -> Iterator[list[bool]]:
        """Turn an error of the connection into a sentence; yields a list that is filled when there is no program."""
        has_none: list[bool] = []
        try:
            yield has_none
        except grpc.RpcError as error:
            code, message = error.code(), _said(error)
            if without_program and code == grpc.StatusCode.FAILED_PRECONDITION:
                has_none.append(True)
                return
            if "election id" in message.lower():
                raise ForetailError(
                    f"another controller is the primary of the switch at {self.address}: stop it, then try again"
                ) from None
            raise ForetailError(
                f"the switch at {self.address} {what} ({code.name.lower().replace('_', ' ')}: {message[:200]}): look "
                f"at its log"
            ) from None


def _said(error: grpc.RpcError) -> str:
    """Return what a switch says of a failure: of the first update that failed, where it names one."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if isinstance(details, bytes):
        for one in rpc_status.Status.FromString(details).details:
            detail = p4r.Error()
            if one.Unpack(detail) and detail.canonical_code != rpc_code.OK:
                return re.sub(r"\s+", " ", detail.message) or f"code {detail.canonical_code}"
    return re.sub(r"\s+", " ", error.details() or "")
