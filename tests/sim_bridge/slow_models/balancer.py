"""The balancer of one connection again, slow and obvious: all that happened is kept, and looked through."""

from __future__ import annotations

from typing import Any

MASK = 2**64 - 1


def mixed(bits: int) -> int:
    """The finaliser of SplitMix64."""
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & MASK
    return bits ^ bits >> 31


class SplitMix:
    """The stream of the balancer."""

    def __init__(self, seed: int) -> None:
        self.state = mixed(mixed(seed) + int.from_bytes(b"balancer", "big") & MASK)

    def uniform(self) -> float:
        """From 0 to 1."""
        self.state = self.state + 0x9E3779B97F4A7C15 & MASK
        return (mixed(self.state) >> 11) * 2.0**-53

    def word(self) -> int:
        """32 bits."""
        return int(self.uniform() * 2**32)


class SlowBalancer:
    """One connection under uss, rss, sirona or flowbender; `settings` are those of ``scenario.balancing``."""

    def __init__(self, settings: dict[str, Any], seed: int) -> None:
        self.settings = settings
        self.random = SplitMix(seed)
        self.subflows = 1 if settings["name"] == "flowbender" else settings["subflows"]
        self.entropies = [self.random.word() for _ in range(self.subflows)]
        self.sent = 0
        self.end_ns: int | None = None
        self.answers: list[tuple[int, int, int, bool]] = []  # subflow, sent, came, marked; of the interval or the way
        self.moving: dict[int, float] = {}
        self.way_from_ns = 0

    def _interval(self, now: int) -> None:
        if self.settings["name"] not in ("rss", "sirona") or (self.end_ns is not None and now < self.end_ns):
            return
        if self.end_ns is not None:
            worst = self._worst_of_sirona() if self.settings["name"] == "sirona" else self._worst_of_rss()
            if worst is not None:
                self.entropies[worst] = self.random.word()
                self.moving.pop(worst, None)
        self.answers = []
        self.end_ns = now + int(self.settings["interval_ns"] * (1 + self.settings["jitter"] * self.random.uniform()))

    def _worst_of_sirona(self) -> int | None:
        assert self.end_ns is not None
        last = self.settings["last_share"] * self.settings["interval_ns"]
        late = [(came - sent, subflow) for subflow, sent, came, _ in self.answers if self.end_ns - came <= last]
        return max(late, key=lambda one: one[0])[1] if late else None

    def _worst_of_rss(self) -> int | None:
        metric = self.settings["metric"]
        scores: dict[int, float] = {}
        for subflow in range(self.subflows):
            rtts = [came - sent for one, sent, came, _ in self.answers if one == subflow]
            marks = [marked for one, _, _, marked in self.answers if one == subflow]
            if not rtts:
                scores[subflow] = float("-inf") if metric == "fed_back" else float("inf")
            elif metric == "marks":
                scores[subflow] = sum(marks) / len(marks)
            else:
                mean = sum(rtts) / len(rtts)
                scores[subflow] = {"max": max(rtts), "ewma": self.moving.get(subflow, 0.0)}.get(metric, mean)
        in_turn = [(self.sent + place) % self.subflows for place in range(self.subflows)]
        worst = max(in_turn, key=lambda subflow: scores[subflow])
        return None if scores[worst] == float("-inf") else worst

    def next(self, now: int) -> tuple[int, int]:
        """The subflow of the next packet, and its entropy."""
        self._interval(now)
        subflow = self.sent % self.subflows
        self.sent += 1
        return subflow, self.entropies[subflow]

    def acknowledged(self, subflow: int, sent: int, marked: bool, now: int) -> None:
        """A packet was answered."""
        self._interval(now)
        if self.settings["name"] == "flowbender":
            return self._bend(sent, marked, now)
        self.answers.append((subflow, sent, now, marked))
        weight = self.settings["ewma_weight"]
        before = self.moving.get(subflow)
        self.moving[subflow] = now - sent if before is None else weight * (now - sent) + (1 - weight) * before
        return None

    def _bend(self, sent: int, marked: bool, now: int) -> None:
        if sent < self.way_from_ns:
            return
        # A round lasts from its first answer to that of a packet sent after it.
        if self.answers and sent >= self.answers[0][2]:
            marks = [one[3] for one in self.answers]
            self.answers = []
            if sum(marks) > self.settings["mark_share"] * len(marks):
                self.entropies = [self.random.word()]
                self.way_from_ns = now + 1
                return
        self.answers.append((0, sent, now, marked))
