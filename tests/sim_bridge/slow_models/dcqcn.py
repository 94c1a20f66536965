"""The sender of DCQCN, slow and obvious: its timers run one by one."""

from __future__ import annotations


class SlowDcqcn:
    """The sender of DCQCN, whose timers run one by one."""

    def __init__(
        self,
        line: float,
        gain: float,
        alpha_ns: int,
        increase_ns: int,
        increase_bytes: int,
        fast_rounds: int,
        additive_bps: float,
        hyper_bps: float,
    ) -> None:
        self.line, self.gain, self.fast_rounds = line, gain, fast_rounds
        self.alpha_ns, self.increase_ns, self.increase_bytes = alpha_ns, increase_ns, increase_bytes
        self.additive, self.hyper = additive_bps / 8e9, hyper_bps / 8e9
        self.rate = self.target = line
        self.alpha = 1.0
        self.limited = False
        self.next_decay = self.next_increase = 0
        self.timer_rounds = self.byte_rounds = self.bytes = 0

    def tick(self, now: int) -> None:
        while self.limited and min(self.next_decay, self.next_increase) <= now:
            if self.next_decay <= self.next_increase:
                self.alpha *= 1 - self.gain
                self.next_decay += self.alpha_ns
            else:
                self.timer_rounds += 1
                self.increase()
                self.next_increase += self.increase_ns

    def increase(self) -> None:
        if max(self.timer_rounds, self.byte_rounds) < self.fast_rounds:
            added = 0.0
        elif min(self.timer_rounds, self.byte_rounds) > self.fast_rounds:
            added = self.hyper
        else:
            added = self.additive
        self.target = min(self.target + added, self.line)
        self.rate = (self.rate + self.target) / 2

    def happens(self, now: int, sent_bytes: int) -> float:
        """What leaves, or a notification where nothing does; returns the rate after it."""
        self.tick(now)
        if sent_bytes == 0:
            self.limited = True
            self.target, self.rate = self.rate, max(self.rate * (1 - self.alpha / 2), min(self.additive, self.line))
            self.alpha = (1 - self.gain) * self.alpha + self.gain
            self.next_decay, self.next_increase = now + self.alpha_ns, now + self.increase_ns
            self.timer_rounds = self.byte_rounds = self.bytes = 0
        elif self.limited:
            self.bytes += sent_bytes
            while self.bytes >= self.increase_bytes:
                self.bytes -= self.increase_bytes
                self.byte_rounds += 1
                self.increase()
        return self.rate
